module xport

go 1.19
