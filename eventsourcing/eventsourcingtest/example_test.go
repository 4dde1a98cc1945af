// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/eventsourcing/eventsourcingtest"
	"github.com/refold-io/refold/journal/journaltest"
)

// printer replaces the *testing.T of a test and prints the failures.
type printer struct {
	testing.TB
	cleanup func()
}

func (p *printer) Helper()                           {}
func (p *printer) Cleanup(f func())                  { p.cleanup = f }
func (p *printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (p *printer) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A test states the stored events, a command, the events that the command must store, and the
// expected reply.
func Example() {
	t := &printer{}
	cart := eventsourcingtest.New(t, cartType(mistakes{}))
	cart.Given(Added{[]string{"apple"}})
	eventsourcingtest.When(cart, Add{Articles: []string{"pear", "fig"}}).
		Stores(Added{[]string{"pear", "fig"}}).
		Answers(3)
	eventsourcingtest.When(cart, Checkout{}).
		Stores(CheckedOut{Total: 3})
	eventsourcingtest.When(cart, Checkout{}).
		Fails(ErrEmpty)
	cart.Restart()
	fmt.Println(cart.State().Paid)

	eventsourcingtest.When(cart, Add{Articles: []string{"plum"}}).Answers(2) // the reply is 1
	t.cleanup()
	// Output:
	// [3]
	// eventsourcingtest_test.Add{Command:{} Articles:[plum]} is answered 1, want 2
}

// The journal rejects a write.
func ExampleKit_Journal() {
	t := &printer{}
	cart := eventsourcingtest.New(t, cartType(mistakes{}))
	defer func() { t.cleanup() }()

	cart.Journal().Inject(journaltest.Fault{Do: journaltest.Reject})
	o := eventsourcingtest.When(cart, Add{Articles: []string{"pear"}}).StoresNothing()
	fmt.Println(o.Err)

	eventsourcingtest.When(cart, Add{Articles: []string{"pear"}}).Answers(1)
	// Output:
	// journal: write to "cart|1" rejected: journaltest: injected fault
}
