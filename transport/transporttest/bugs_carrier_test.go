// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest_test

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

// double is a carrier with a bug. A nil field leaves the method of the carrier unchanged.
type double struct {
	*inmem.Carrier

	send    func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error
	receive func(r transport.Receiver, lane transport.Lane, from string, frame []byte)
	close   func(c *inmem.Carrier) error
	operate func(take func(transport.AdminRequest)) func(transport.AdminRequest)
	start   func(c *inmem.Carrier, r transport.Receiver) error
	eager   bool // ServeNamedAdmin also serves requests to any node
}

func (d *double) Send(lane transport.Lane, to identity.Node, frame []byte) error {
	if d.send != nil {
		return d.send(d.Carrier, lane, to, frame)
	}
	return d.Carrier.Send(lane, to, frame)
}

type receiver struct {
	transport.Receiver
	d *double
}

func (r receiver) Receive(lane transport.Lane, from string, frame []byte) {
	if r.d.receive != nil {
		r.d.receive(r.Receiver, lane, from, frame)
		return
	}
	r.Receiver.Receive(lane, from, frame)
}

func (d *double) Start(r transport.Receiver) error {
	if d.start != nil {
		return d.start(d.Carrier, receiver{r, d})
	}
	return d.Carrier.Start(receiver{r, d})
}

func (d *double) ServeNamedAdmin(take func(transport.AdminRequest)) error {
	if d.eager {
		return d.Carrier.ServeAdmin(take)
	}
	if d.operate != nil {
		take = d.operate(take)
	}
	return d.Carrier.ServeNamedAdmin(take)
}

func (d *double) ServeAdmin(take func(transport.AdminRequest)) error {
	if d.operate != nil {
		take = d.operate(take)
	}
	return d.Carrier.ServeAdmin(take)
}

func (d *double) Close() error {
	if d.close != nil {
		return d.close(d.Carrier)
	}
	return d.Carrier.Close()
}

// each puts the same bug into all carriers of a network.
func each(d double) func() func(c *inmem.Carrier) transport.Carrier {
	return func() func(c *inmem.Carrier) transport.Carrier {
		return func(c *inmem.Carrier) transport.Carrier {
			own := d
			own.Carrier = c
			return &own
		}
	}
}

func sending(f func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error) func() func(c *inmem.Carrier) transport.Carrier {
	return each(double{send: f})
}

func receiving(f func(r transport.Receiver, lane transport.Lane, from string, frame []byte)) func() func(c *inmem.Carrier) transport.Carrier {
	return each(double{receive: f})
}

func carrierBugs() map[string]planted {
	return map[string]planted{
		"mixes up lanes": {finds: []string{"CarrierDelivers", "CarrierSelf"}, carrier: receiving(func(r transport.Receiver, _ transport.Lane, from string, frame []byte) {
			r.Receive(transport.Data, from, frame)
		})},
		"cuts names at the dot": {finds: []string{"CarrierDelivers"}, carrier: receiving(func(r transport.Receiver, lane transport.Lane, from string, frame []byte) {
			name, _, _ := strings.Cut(from, ".")
			r.Receive(lane, name, frame)
		})},
		"truncates large frames": {finds: []string{"CarrierSizes"}, carrier: receiving(func(r transport.Receiver, lane transport.Lane, from string, frame []byte) {
			r.Receive(lane, from, frame[:min(len(frame), 1<<20-1)])
		})},
		"accepts any size": {finds: []string{"CarrierSizes"}, carrier: sending(func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
			return c.Send(lane, to, frame[:min(len(frame), c.MaxFrame())])
		})},
		"reorders": {finds: []string{"CarrierOrder"}, hangs: true, carrier: func() func(c *inmem.Carrier) transport.Carrier {
			var mu sync.Mutex
			held := make(map[transport.Lane][]byte)
			n := 0
			return func(c *inmem.Carrier) transport.Carrier {
				return &double{Carrier: c, send: func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
					mu.Lock()
					defer mu.Unlock()
					if n++; n%50 == 0 && held[lane] == nil {
						held[lane] = slices.Clone(frame)
						return nil
					}
					err := c.Send(lane, to, frame)
					if late := held[lane]; late != nil {
						held[lane] = nil
						return c.Send(lane, to, late)
					}
					return err
				}}
			}
		}},
		"reads the frame later": {finds: []string{"CarrierBuffer"}, carrier: receiving(func(r transport.Receiver, lane transport.Lane, from string, frame []byte) {
			r.Receive(lane, from, make([]byte, len(frame))) // as if the sender had modified the frame
		})},
		"ignores the UID": {finds: []string{"CarrierIncarnations"}, carrier: sending(func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
			return c.Send(lane, identity.Node{Name: to.Name}, frame)
		})},
		"ignores case": {finds: []string{"CarrierIncarnations", "CarrierNames"}, hangs: true, carrier: sending(func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
			_ = c.Send(lane, identity.Node{Name: strings.ToUpper(to.Name)}, frame)
			return c.Send(lane, to, frame)
		})},
		"drops frames to itself": {finds: []string{"CarrierSelf"}, hangs: true, carrier: sending(func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
			if to == c.Self() {
				return nil
			}
			return c.Send(lane, to, frame)
		})},
		"returns an error for an unknown node": {finds: []string{"CarrierNobody"}, carrier: sending(func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
			if to.Name == "nobody" {
				return transport.ErrDisconnected
			}
			return c.Send(lane, to, frame)
		})},
		"sends after Close": {finds: []string{"CarrierClose"}, carrier: sending(func(c *inmem.Carrier, lane transport.Lane, to identity.Node, frame []byte) error {
			_ = c.Send(lane, to, frame)
			return nil
		})},
		"receives after Close": {finds: []string{"CarrierCloseUnderLoad"}, carrier: each(double{close: func(c *inmem.Carrier) error {
			time.AfterFunc(20*time.Millisecond, func() { _ = c.Close() })
			return nil
		}})},
		"passes the sender in the frame header": {finds: []string{"TrustForged"}, carrier: receiving(func(r transport.Receiver, lane transport.Lane, from string, frame []byte) {
			if f, err := link.DecodeFrame(frame); err == nil {
				from = f.From.Name
			}
			r.Receive(lane, from, frame)
		})},
	}
}
