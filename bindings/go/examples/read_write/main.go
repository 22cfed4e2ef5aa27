// SPDX-License-Identifier: BSD-3-Clause

// read_write opens an endpoint, writes to a peer's memory, reads it back, and closes.
//
//	XPORT_BACKEND=ofi:sockets read_write
//
// Both sides are in this process: each has an instance. Without the variable it uses libfabric's sockets provider.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"xport"
)

const size = 64 << 10

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// open returns an instance. Its method Close ends all that belongs to it.
func open() *xport.Instance {
	options := &xport.Options{}
	if os.Getenv("XPORT_BACKEND") == "" {
		options.Backend = "ofi:sockets"
	}
	x, err := xport.Open(options)
	check(err)
	return x
}

// target lends memory to one peer at a time, until its context ends.
func target(ctx context.Context, address chan<- string) {
	x := open()
	defer x.Close()
	memory, err := x.Alloc(size, xport.RemoteRead|xport.RemoteWrite)
	check(err)
	key, err := memory.Key()
	check(err)
	listener, err := x.Listen("127.0.0.1:0", key)
	check(err)
	address <- listener.Address()
	for {
		peer, err := listener.Accept(ctx)
		if err != nil {
			return
		}
		<-peer.Done()
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	address := make(chan string)
	go target(ctx, address)

	x := open()
	defer x.Close()
	peer, err := x.Connect(ctx, <-address, nil)
	check(err)
	memory, err := peer.Unpack(peer.PrivateData())
	check(err)

	text := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	check(peer.Write(ctx, text, memory, 0))
	got := make([]byte, size)
	check(peer.Read(ctx, got, memory, 0))
	fmt.Printf("%v\nwrote and read %d bytes, equal: %v\n", peer, size, bytes.Equal(text, got))

	// The region is an io.ReaderAt and an io.WriterAt as well.
	_, err = memory.WriteAt([]byte("Go"), 4)
	check(err)
	_, err = memory.ReadAt(got[:8], 0)
	check(err)
	fmt.Printf("%s\n", got[:8])
	check(peer.Close(ctx))
}
