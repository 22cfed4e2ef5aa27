/* SPDX-License-Identifier: BSD-3-Clause */
/* plant.h - for tests: faults that the checks must detect, by the hidden option --plant. */
#ifndef CP_PLANT_H
#define CP_PLANT_H

enum cp_plant {
	CP_PLANT_NONE,
	CP_PLANT_BLOCK, /* the source changes a byte after its checksum was made */
	CP_PLANT_FILE,  /* the source has another checksum for the whole file */
	CP_PLANT_STORED, /* the sink stores another byte than came */
	CP_PLANT_PAUSE, /* no fault: the source waits for two seconds after the first block of a file */
	CP_PLANT_SYNC, /* no fault: the sink takes ten seconds to sync a file */
	CP_PLANT_LATE, /* the sink's file system reserves nothing, and finds out when it syncs that it is full, as NFS does */
	CP_PLANT_IDLE, /* no fault: the server's patience is three seconds */
	CP_PLANT_WALK /* no fault: the client takes six seconds to add up what there is to send */
};

extern enum cp_plant cp_plant;

#endif
