// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"
)

// maxAnswering is the maximum time until every command has a reply after the faults have ended.
const maxAnswering = 90 * time.Second

// maxBalancing is the maximum time until every node that accepts shards has some: each rebalance
// may move one.
const maxBalancing = 6 * time.Minute

// calm ends all random actions.
func (d *sharding) calm() {
	d.w.Logf("no more random moves of shards")
	d.quiet = true
	d.store.broken, d.store.slow = false, false
}

// finish checks the final state, when the nodes are one cluster and no faults occur.
func (d *sharding) finish() {
	for len(d.commands) < enoughMessages && d.c.violation == nil {
		d.work()
		d.c.run(100 * time.Millisecond)
	}
	d.closing = true
	d.passivateSome()
	if !d.converge("every-command-has-a-reply", maxAnswering, d.unanswered) {
		return
	}
	if !d.converge("every-shard-has-a-home", maxAnswering, d.waiting) {
		return
	}
	if !d.converge("undrained-hosts-again", maxBalancing, d.undrainedHosts) {
		return
	}
	d.accountForAll()
	d.allStored()
}

func (d *sharding) converge(invariant string, most time.Duration, why func() string) bool {
	began := d.w.Now()
	if !d.c.until(most, func() bool { return why() == "" }) {
		d.c.violate(invariant, d.living()[0].h.p.Node(), "after %v: %s", d.w.Now()-began, why())
	}
	if d.c.violation == nil {
		d.hit("checked", invariant)
	}
	return d.c.violation == nil
}

// unanswered sends commands to all shards from all nodes and returns one that has no reply.
func (d *sharding) unanswered() string {
	why := ""
	for _, s := range d.living() {
		if s.asked == nil {
			s.asked = make([]uint64, d.plan.Shards)
		}
		for n, nr := range s.asked {
			if nr != 0 {
				switch o := d.command(nr).outcome; o {
				case done:
					continue
				case waits:
					why = fmt.Sprintf("command %d of %v for shard %d waits", nr, s.h.p.Node(), n)
					continue
				case failed, refused, unknown:
					d.hit("sharding", "sent again at the end")
				}
			}
			s.h.p.Do(func() { s.asked[n] = s.write(d.accounts[n*d.plan.Entities]) })
			why = fmt.Sprintf("%v sends a command for shard %d", s.h.p.Node(), n)
		}
	}
	return why
}

// waiting returns a description of a command that waits or of a wrong state, empty if there is none.
func (d *sharding) waiting() string {
	for _, s := range d.living() {
		switch n := s.m.Waiting(); {
		case n > 0:
			return fmt.Sprintf("%d commands wait on %v", n, s.h.p.Node())
		case !s.m.Registered():
			return s.h.p.Node().String() + " is not registered"
		case !s.active():
			return s.h.p.Node().String() + " hosts nothing"
		}
		if coord, _ := s.m.Coordinator(); d.byNode[coord] == nil || d.byNode[coord].m.LocalCoordinator() == nil || !d.byNode[coord].hasSingleton {
			return fmt.Sprintf("%v expects the coordinator on %v, which does not run it", s.h.p.Node(), coord)
		}
	}
	return d.forgotten()
}

// passivateSome passivates running entities, so that they are forgotten.
func (d *sharding) passivateSome() {
	for _, a := range d.accounts {
		for _, e := range a.running {
			if d.rand.IntN(2) == 0 {
				e.s.h.p.Do(e.passivate)
			}
		}
	}
}

// forgotten returns an entity that is remembered and does not run, or the reverse.
func (d *sharding) forgotten() string {
	if !d.plan.Config.Region.Remember {
		return ""
	}
	for _, a := range d.accounts {
		if d.rememberStore.wrong(a) {
			return fmt.Sprintf("%s runs %d times, which differs from the remembered entities", a.id, len(a.running))
		}
	}
	return ""
}

// accountForAll checks that each command was delivered or refused, or was lost with a node or a
// link.
func (d *sharding) accountForAll() {
	for i := range d.commands {
		l := &d.commands[i]
		why := ""
		switch {
		case l.delivered || l.refused:
			continue
		case l.dropped:
			why = "sender quarantined"
		case l.at.gone:
			why = "node has ended"
		case l.to == nil:
		case l.to.gone:
			why = "receiver has ended"
		default:
			g := d.w.Gap(l.at.h.p.Node(), l.to.h.p.Node())
			switch {
			case g.Noticed > l.before.Noticed:
				why = "link gap"
			case g.Frames > l.before.Frames:
				why = "frame lost without a later one"
			}
		}
		if d.plan.Calm && !l.forced() || why == "" {
			d.c.violate("planned-moves-lose-nothing", l.at.h.p.Node(), "command %d of %v for %s is lost there: %s", i+1, l.from.h.p.Node(), l.account.id, why)
			return
		}
		d.hit("command lost", why)
	}
	d.hit("checked", "commands are accounted for")
	if d.plan.Calm {
		d.hit("checked", "planned moves only")
	}
}

// forced reports whether the holder or the receiver of a command was stopped by force.
func (l *command) forced() bool { return l.at.forced || l.to != nil && l.to.forced }

// allStored checks that each acknowledged command is stored once.
func (d *sharding) allStored() {
	times := map[uint64]int{}
	for _, a := range d.accounts {
		for _, nr := range a.stored {
			times[nr]++
			if l := d.command(nr); l.account != a || times[nr] > 1 {
				d.c.violate("stored-once", l.from.h.p.Node(), "command %d for %s is stored %d times, in %s", nr, l.account.id, times[nr], a.id)
			}
		}
	}
	for i := range d.commands {
		if l := &d.commands[i]; l.outcome == done && times[uint64(i+1)] != 1 {
			l.from.violate("acknowledged-is-stored", "command %d for %s is done, and stored %d times", i+1, l.account.id, times[uint64(i+1)])
		}
	}
	d.hit("checked", "acknowledged commands are stored once")
}
