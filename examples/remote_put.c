/* SPDX-License-Identifier: BSD-3-Clause */
/* One process writes into the memory of another.  `remote_put` is the target and prints where it listens; `remote_put
 * HOST:PORT` is the initiator. */
#include <stdio.h>
#include <xport.h>
int main(int argc, char **argv)
{
	uint64_t memory = 0, value = 0x600df00d;
	char key[1024], name[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = key, .private_len = sizeof(key)};
	struct xport_ep_info peer = {.size = sizeof(peer)};
	struct xport_error e = {.size = sizeof(e)};
	struct xport_completion c = {0};
	xport *x = NULL;
	xport_listener *l;
	xport_ep *ep;
	xport_mr *mr;
	xport_rkey *rkey;
	int bad = xport_open(NULL, &x);
	if (argc < 2) /* the target: whoever connects is handed the key to its memory */
		bad = bad || xport_mr_reg(x, &memory, 8, XPORT_REMOTE_WRITE, &mr) ||
		      xport_rkey_pack(mr, key, &attr.private_len) || xport_listen(x, "127.0.0.1:0", &attr, &l) ||
		      xport_listener_name(l, name, 64) || puts(name) < 0 || fflush(NULL) || xport_accept(l, 60000, &ep);
	else
		bad = bad || xport_connect(x, argv[1], NULL, 10000, &ep) || xport_ep_query(ep, &peer) ||
		      xport_rkey_unpack(ep, peer.private_data, peer.private_len, &rkey) ||
		      xport_put(ep, &value, sizeof(value), rkey, 0, NULL);
	while (!bad && c.type != (argc < 2 ? XPORT_EVENT_CLOSED : XPORT_OP_PUT)) /* the put's success: it is placed */
		bad = xport_wait(x, &c, 1, -1) < 0 || c.type == XPORT_EVENT_LOST;
	if (bad || (argc < 2 ? memory != value : c.status < 0))
		return xport_last_error(x, &e), fprintf(stderr, "%s: %s\n", e.operation, e.text), 1;
	return xport_close(x), 0;
}
