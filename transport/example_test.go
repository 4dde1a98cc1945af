// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

const (
	kindGreeting transport.Kind = iota + transport.FirstUserKind
	kindSum
)

func Example() {
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	open := func(name string) *transport.Transport {
		node, err := identity.New(name)
		if err != nil {
			panic(err)
		}
		t, err := transport.Open(network.Carrier(node), transport.Config{})
		if err != nil {
			panic(err)
		}
		return t
	}
	alice, bob := open("alice:7400"), open("bob:7400")
	defer func() { _, _ = alice.Close(), bob.Close() }()

	greeted := make(chan struct{})
	bob.Handle(kindGreeting, func(_ context.Context, m transport.Message) {
		fmt.Printf("bob receives %q from %s\n", m.Payload, m.From.Name)
		close(greeted)
	})
	bob.HandleRequest(kindSum, func(_ context.Context, r *transport.Request) {
		sum := byte(0)
		for _, b := range r.Payload {
			sum += b
		}
		_ = r.Reply([]byte{sum}) // here, or later, from any goroutine
	})

	if err := alice.Send(bob.Self(), transport.Data, kindGreeting, []byte("hello")); err != nil {
		fmt.Println(err)
	}
	<-greeted
	sum, err := alice.Request(context.Background(), bob.Self(), kindSum, []byte{1, 2, 3})
	fmt.Println("the sum is", sum[0], err)
	// Output:
	// bob receives "hello" from alice:7400
	// the sum is 6 <nil>
}
