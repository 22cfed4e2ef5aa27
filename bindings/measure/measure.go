// SPDX-License-Identifier: BSD-3-Clause

// measure ADDRESS ROUNDS is the program of bindings/measure/run in Go.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	"xport"
)

const (
	depth = 64
	mib   = 1 << 20
)

var ctx = context.Background()

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

func seconds(step func(), rounds int) float64 {
	for i := 0; i < rounds/10+1; i++ {
		step()
	}
	begin := time.Now()
	for i := 0; i < rounds; i++ {
		step()
	}
	return time.Since(begin).Seconds() / float64(rounds)
}

func main() {
	rounds := value(strconv.Atoi(os.Args[2]))
	x := value(xport.Open(nil))
	ep := value(x.Connect(ctx, os.Args[1], nil))
	key := value(ep.Unpack(ep.PrivateData()))
	small, answer := value(x.Buffer(8)), value(x.Buffer(8))
	memory := value(value(x.Alloc(mib, 0)).Buffer(0, mib))
	var many [depth]*xport.Buffer
	for i := range many {
		many[i] = value(x.Buffer(8))
	}
	fmt.Printf("%.3f ", 1e6*seconds(func() { must(ep.Put(ctx, small, key, 0)) }, rounds))
	fmt.Printf("%.2f ", 1e6*seconds(func() {
		got := ep.StartRecv(answer, 2)
		must(ep.Send(ctx, small, 1))
		value(got.Wait(ctx))
	}, rounds))
	fmt.Printf("%.0f ", 1e-3*depth/seconds(func() {
		var puts [depth]*xport.Operation
		for i, buf := range many {
			puts[i] = ep.StartPut(buf, key, 0)
		}
		for _, put := range puts {
			value(put.Wait(ctx))
		}
	}, rounds/depth+1))
	fmt.Printf("%.2f ", 1/seconds(func() { must(ep.Get(ctx, memory, key, 0)) }, rounds/50+1)/1024)
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	fmt.Printf("%.1f\n", float64(usage.Maxrss)/1024)
	must(ep.Close(ctx))
	must(x.Close())
}
