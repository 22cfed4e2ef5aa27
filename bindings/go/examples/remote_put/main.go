// SPDX-License-Identifier: BSD-3-Clause

// remote_put: one process writes into the memory of another.
//
//	remote_put             the target: prints its address, then waits for the put
//	remote_put HOST:PORT   the initiator: puts a text into the target's memory, and gets it back
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"xport"
)

func target(ctx context.Context) error {
	x, err := xport.Open(nil) // the variable XPORT_BACKEND selects the transport
	if err != nil {
		return err
	}
	defer x.Close()
	memory, err := x.Alloc(4096, xport.RemoteRead|xport.RemoteWrite)
	if err != nil {
		return err
	}
	key, err := memory.Key()
	if err != nil {
		return err
	}
	listener, err := x.Listen("127.0.0.1:0", key) // each peer gets the key
	if err != nil {
		return err
	}
	fmt.Println(listener.Address())
	peer, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	event, err := x.Event(ctx)
	if err != nil {
		return err
	}
	if event.Type != xport.Notify {
		return event.Err
	}
	fmt.Printf("%d bytes: %s\n", event.Length, memory.Bytes()[:event.Length])
	<-peer.Done() // the initiator closes
	return nil
}

func initiator(ctx context.Context, address string) error {
	x, err := xport.Open(nil)
	if err != nil {
		return err
	}
	defer x.Close()
	peer, err := x.Connect(ctx, address, nil)
	if err != nil {
		return err
	}
	key, err := peer.Unpack(peer.PrivateData())
	if err != nil {
		return err
	}
	text := []byte("written by Go")
	buf, err := x.BufferOf(text) // memory that the network may access
	if err != nil {
		return err
	}
	defer buf.Free()
	if err := peer.PutNotify(ctx, buf, key, 0, 0); err != nil {
		return err
	}
	if err := peer.Get(ctx, buf, key, 0); err != nil {
		return err
	}
	fmt.Printf("the target has: %s\n", buf.Bytes())
	return peer.Close(ctx)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if len(os.Args) > 1 {
		err = initiator(ctx, os.Args[1])
	} else {
		err = target(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}
