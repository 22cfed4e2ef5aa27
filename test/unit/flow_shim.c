/* SPDX-License-Identifier: BSD-3-Clause */
#include "flow_shim.h"

#include <stdlib.h>

#include "core/liveness/flow.h"

struct flow {
	uint32_t sent, received;
	uint64_t control_out, control_in;
	struct xpi_flow f;
};

struct flow *flow_new(void)
{
	struct flow *f = calloc(1, sizeof(*f));

	if (f == NULL)
		abort();
	f->f.n = (struct xpi_flow_counters){&f->sent, &f->received, &f->control_out, &f->control_in};
	xpi_flow_start(&f->f);
	return f;
}

void flow_send(struct flow *f, unsigned frames)
{
	xpi_flow_count(&f->sent, f->sent + frames);
}

void flow_receive(struct flow *f, unsigned frames)
{
	xpi_flow_count(&f->received, f->received + frames);
}

void flow_send_control(struct flow *f)
{
	xpi_flow_count_control(&f->control_out);
}

void flow_receive_control(struct flow *f)
{
	xpi_flow_count_control(&f->control_in);
}

void flow_poll(struct flow *f, bool idle)
{
	if (xpi_flow_asked(&f->f))
		xpi_flow_answer(&f->f, idle);
}

bool flow_asked(const struct flow *f)
{
	return xpi_flow_asked(&f->f);
}

void flow_say(struct flow *f, uint8_t *bytes, int64_t now)
{
	xpi_flow_say(&f->f, bytes, now);
}

int flow_heard(struct flow *f, const uint8_t *bytes, int64_t now, int timeout_ms)
{
	return xpi_flow_heard(&f->f, bytes, now, timeout_ms);
}

bool flow_stands(int verdict)
{
	return verdict == XPI_FLOW_STANDS;
}
