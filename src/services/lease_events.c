/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of leases, kept until the application takes them. */
#include "services/grow.h"
#include "services/last_error.h"
#include "services/lease.h"

void svc_lease_event(struct xport_lease *lease, unsigned event)
{
	struct xport_leases *l = lease->leases;

	lease->events |= event;
	if (lease->queued)
		return;
	lease->queued = true;
	lease->event_next = NULL;
	*l->last_event = lease;
	l->last_event = &lease->event_next;
}

static void event_out(struct xport_lease *lease)
{
	struct xport_leases *l = lease->leases;
	struct xport_lease **at = &l->first_event;

	while (*at != lease)
		at = &(*at)->event_next;
	*at = lease->event_next;
	if (l->last_event == &lease->event_next)
		l->last_event = at;
	lease->queued = false;
}

void svc_lease_drop_events(struct xport_lease *lease)
{
	if (lease->queued)
		event_out(lease);
	lease->events = 0;
}

static int lease_next_event(struct xport_leases *l, struct xport_lease_event *event)
{
	struct xport_lease *lease = l->first_event;
	unsigned which;

	if (lease == NULL)
		return 0;
	which = lease->events & -lease->events; /* the lowest bit: they come in this order */
	if (which == SVC_LEASE_STARTED)
		event->type = lease->started_as;
	else if (which == SVC_LEASE_KEPT)
		event->type = XPORT_LEASE_KEPT;
	else
		event->type = lease->handed ? XPORT_LEASE_HANDED : XPORT_LEASE_ENDED;
	event->status = which == SVC_LEASE_STARTED ? XPORT_OK : which == SVC_LEASE_KEPT ? lease->kept : lease->status;
	event->lease = lease;
	event->ep = lease->ep;
	event->context = lease->context;
	lease->events &= ~which;
	if (which == SVC_LEASE_KEPT)
		lease->kept = XPORT_OK;
	if (lease->events == 0)
		event_out(lease);
	return 1;
}

int xport_leases_next(xport_leases *l, struct xport_lease_event *event)
{
	struct xport_lease_event e = {.size = sizeof(e)};
	int r;

	if (l == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_LEASE_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_leases_next", NULL,
		                "an argument is NULL, or xport_lease_event.size is not the size of the struct");
	pthread_mutex_lock(&l->engine.lock);
	r = lease_next_event(l, &e);
	pthread_mutex_unlock(&l->engine.lock);
	if (r == 1)
		svc_grow_out(event, &e, sizeof(e));
	return r;
}
