/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - regions and keys of the UCX back end: by pointer where memory is shared, and put, get and drain by UCX. */
#include "base/bytes.h"
#include "side.h"

/* Allocated memory: zeroed, and where it is shared, reached by pointer; user memory has no native key. */
void test_memory(struct side *s, const char *provider, bool a)
{
	const size_t len = (3 << 20) + 5;
	char key[1024], user[64], go;
	unsigned char *base = NULL;
	size_t n;
	void *direct = NULL, *mr, *rkey;
	bool shared = strcmp(provider, "tcp") != 0;
	struct conn *c;
	int rc;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	mr = calloc(1, s->caps.mr_size);
	rkey = calloc(1, s->caps.rkey_size);
	n = sizeof(key);
	if (!a) {
		rc = s->ops->mr_alloc(s->be, mr, len, 7, (void **)&base);
		CHECK(rc == (shared ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED), "%d %s", rc, s->err.text);
		if (shared) {
			CHECK(((uintptr_t)base & 4095) == 0);
			for (size_t i = 0; i < len; i++)
				CHECK(base[i] == 0, "not zeroed at %zu", i);
		}
		CHECK(s->ops->rkey_pack(s->be, NULL, mr, key, &n) == XPORT_OK && n <= s->caps.rkey_native_max, "%s",
		      s->err.text);
		CHECK((n > 0) == shared);
		put_msg(s, n > 0 ? key : "-", n > 0 ? n : 1);
		get_msg(s, &go, 1);
		CHECK(n == 0 || (base[0] == 1 && base[len - 1] == 2));
		s->ops->mr_dereg(s->be, mr);
		CHECK(s->ops->mr_reg(s->be, mr, user, sizeof(user), 7) == XPORT_OK);
		n = sizeof(key);
		CHECK(s->ops->rkey_pack(s->be, NULL, mr, key, &n) == XPORT_OK && n == 0);
		s->ops->mr_dereg(s->be, mr);
		barrier(s);
	} else {
		n = get_msg(s, key, sizeof(key));
		if (n > 1) {
			for (size_t cut = 0; cut < n; cut++)
				CHECK(s->ops->rkey_unpack(s->be, c->ep, rkey, key, cut, 0, len, 7, &direct) ==
				      XPORT_ERR_BAD_KEY);
			rc = s->ops->rkey_unpack(s->be, c->ep, rkey, key, n, 0, len, 7, &direct);
			CHECK(rc == XPORT_OK && direct != NULL, "%d %s", rc, s->err.text);
			*(unsigned char *)direct = 1;
			((unsigned char *)direct)[len - 1] = 2;
			CHECK(s->ops->put(s->be, c->ep, key, 1, NULL, rkey, 0, NULL) == XPORT_ERR_NOT_SUPPORTED);
			CHECK(s->ops->get(s->be, c->ep, key, 1, NULL, rkey, 0, NULL) == XPORT_ERR_NOT_SUPPORTED);
		}
		CHECK((n > 1) == shared);
		put_msg(s, "g", 1);
		if (n > 1)
			s->ops->rkey_destroy(s->be, rkey);
		barrier(s);
	}
	conn_free(s, c);
	close_side(s);
}

/* UCX would take the key, and write where it says by a message, whatever is there. */
static void refuse_without_adapter(struct side *s, struct conn *c, uint64_t base, const void *blob, size_t len)
{
	uint8_t key[UCX_KEY_MAX + 16];
	struct xpi_wr w = xpi_wr(key, sizeof(key));
	struct ucx_rkey rkey;
	void *direct;

	if (s->be->rdma)
		return;
	xpi_wr_u8(&w, 2);
	xpi_wr_u64(&w, base);
	xpi_wr_u16(&w, (uint16_t)len);
	xpi_wr_bytes(&w, blob, len);
	CHECK(!w.bad);
	s->be->rdma = true;
	CHECK(s->ops->rkey_unpack(s->be, c->ep, &rkey, key, sizeof(key) - w.left, 0, 8, 7, &direct) ==
	      XPORT_ERR_NOT_SUPPORTED);
	s->be->rdma = false;
}

/*
 * put, get and drain by UCX itself, which the back end uses only with an RDMA adapter: the key is made here by hand, so
 * that the code is run where there is none.
 */
void test_native_rma(struct side *s, const char *provider, bool a)
{
	static char mem[100000], got[100000];
	struct msg {
		uint64_t base;
		size_t len;
		char blob[512];
	} m;
	struct slot *slot;
	struct conn *c;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	if (!a) {
		ucp_mem_map_params_t p = {.field_mask =
		                                  UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		                          .address = mem,
		                          .length = sizeof(mem)};
		ucp_mem_h h;
		void *blob;

		CHECK(UCP(ucp_mem_map)(s->be->context, &p, &h) == UCS_OK);
		CHECK(UCP(ucp_rkey_pack)(s->be->context, h, &blob, &m.len) == UCS_OK && m.len <= sizeof(m.blob));
		memcpy(m.blob, blob, m.len);
		UCP(ucp_rkey_buffer_release)(blob);
		m.base = (uintptr_t)mem;
		put_msg(s, &m, sizeof(m));
		barrier(s);
		for (size_t i = 0; i < sizeof(mem); i++)
			CHECK((unsigned char)mem[i] == byte_of(5, i), "at %zu", i);
		barrier(s);
		UCP(ucp_mem_unmap)(s->be->context, h);
	} else {
		ucp_mem_map_params_t own = {.field_mask =
		                                    UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		                            .address = mem,
		                            .length = sizeof(mem)};
		struct ucx_mr mr = {.base = mem};
		struct ucx_rkey key = {0};
		struct xpi_req *reqs[3];
		int rc[3];

		CHECK(get_msg(s, &m, sizeof(m)) == sizeof(m));
		refuse_without_adapter(s, c, m.base, m.blob, m.len);
		CHECK(UCP(ucp_ep_rkey_unpack)(((struct ucx_ep *)c->ep)->ucp, m.blob, &key.rkey) == UCS_OK);
		key.base = m.base;
		/* What UCX would have to register itself is the core's. */
		slot = slot_get(s, true);
		CHECK(s->ops->put(s->be, c->ep, mem, sizeof(mem), NULL, &key, 0, &slot->req) ==
		      XPORT_ERR_NOT_SUPPORTED);
		CHECK(s->ops->get(s->be, c->ep, got, sizeof(got), &mr, &key, 0, &slot->req) == XPORT_ERR_NOT_SUPPORTED);
		CHECK(UCP(ucp_mem_map)(s->be->context, &own, &mr.mem) == UCS_OK);
		for (size_t i = 0; i < sizeof(mem); i++)
			mem[i] = (char)byte_of(5, i);
		for (int i = 0; i < 3; i++) {
			slot = slot_get(s, true);
			slot->busy = true;
			reqs[i] = &slot->req;
			rc[i] = i == 0   ? s->ops->put(s->be, c->ep, mem, sizeof(mem), &mr, &key, 0, reqs[i])
			        : i == 1 ? s->ops->drain(s->be, c->ep, reqs[i])
			                 : s->ops->get(s->be, c->ep, got + 3, sizeof(got) - 3, &mr, &key, 3, reqs[i]);
			CHECK(rc[i] >= 0, "%d", i);
			while (rc[i] == XPI_PENDING && ((struct slot *)reqs[i])->busy)
				poll_be(s);
		}
		CHECK(s->core.done_bad == 0 && memcmp(got + 3, mem + 3, sizeof(mem) - 3) == 0);
		barrier(s);
		barrier(s);
		UCP(ucp_rkey_destroy)(key.rkey);
		UCP(ucp_mem_unmap)(s->be->context, mr.mem);
	}
	conn_free(s, c);
	close_side(s);
}
