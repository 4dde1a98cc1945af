// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/singleton"
)

type hosted struct {
	name     string
	manager  *singleton.Manager
	exitDone bool // the singleton does not prevent the node from leaving
}

type proxy struct {
	name    string
	machine *singleton.Proxy[uint64]
}

// Host adds a singleton. It sets cfg.Self and cfg.RemovalMargin. The error matches ErrInvalid of
// package singleton, or reports that the name is in use.
func (m *Machine) Host(now time.Duration, cfg singleton.Config) (Effects, error) {
	m.now = max(m.now, now)
	cfg.Self, cfg.RemovalMargin = m.self, m.RemovalMargin
	cfg.Name = cmp.Or(cfg.Name, "singleton")
	i, found := slices.BinarySearchFunc(m.singletons, cfg.Name, func(h *hosted, name string) int { return cmp.Compare(h.name, name) })
	if found {
		return Effects{}, fmt.Errorf("node: singleton %q exists already", cfg.Name)
	}
	manager, err := singleton.New(cfg)
	if err != nil {
		return Effects{}, err
	}
	h := &hosted{name: cfg.Name, manager: manager}
	m.singletons = slices.Insert(m.singletons, i, h)
	if m.members.Suspended() {
		m.hostedStep(h, singleton.Suspend{})
	}
	if m.disconnected {
		m.hostedStep(h, singleton.Link{Up: false})
	}
	if m.exit.begun {
		m.hostedStep(h, singleton.SelfExiting{})
	}
	m.hostedStep(h, singleton.Members(m.members.View().Members))
	return m.end(), nil
}

// Proxy adds a proxy for a singleton. The error matches ErrInvalid of package singleton, or reports
// that a proxy exists.
func (m *Machine) Proxy(now time.Duration, cfg singleton.ProxyConfig) (Effects, error) {
	m.now = max(m.now, now)
	cfg.Singleton = cmp.Or(cfg.Singleton, "singleton")
	i, found := slices.BinarySearchFunc(m.proxies, cfg.Singleton, func(p *proxy, name string) int { return cmp.Compare(p.name, name) })
	if found {
		return Effects{}, fmt.Errorf("node: a proxy for singleton %q exists already", cfg.Singleton)
	}
	machine, err := singleton.NewProxy[uint64](cfg)
	if err != nil {
		return Effects{}, err
	}
	p := &proxy{name: cfg.Singleton, machine: machine}
	m.proxies = slices.Insert(m.proxies, i, p)
	m.proxyEffects(p, machine.See(m.now, m.members.View().Members))
	return m.end(), nil
}

func (m *Machine) find(name string) *hosted {
	i, found := slices.BinarySearchFunc(m.singletons, name, func(h *hosted, name string) int { return cmp.Compare(h.name, name) })
	if !found {
		return nil
	}
	return m.singletons[i]
}

func (m *Machine) eachHosted(in singleton.Input) {
	for _, h := range m.singletons {
		m.hostedStep(h, in)
	}
}

func (m *Machine) hostedStep(h *hosted, in singleton.Input) {
	if h == nil {
		m.count.Refused++
		return
	}
	m.hostedEffects(h, h.manager.Step(m.now, in))
}

func (m *Machine) hostedEffects(h *hosted, e singleton.Effects) {
	for _, n := range e.Notes {
		m.noteSingleton(h.name, n)
	}
	if e.Stop != 0 {
		m.out.Stop = append(m.out.Stop, Instance{h.name, e.Stop})
	}
	m.operate(m.leasePrefix()+h.name, e.ReleaseLease, e.AskLease)
	if e.Start != 0 {
		m.out.Start = append(m.out.Start, Instance{h.name, e.Start})
	}
	for _, s := range e.Send {
		m.sendSingleton(s.To, s.Message)
	}
	h.exitDone = h.exitDone || e.ExitDone || e.Ended
	if e.ExitDone || e.Ended {
		m.checkExit()
	}
}

func (m *Machine) noteSingleton(name string, n singleton.Note) {
	attrs := []membership.Attr{{Key: "singleton", Value: name}, {Key: "state", Value: n.State.String()}}
	switch n.Kind {
	case singleton.Became:
		m.count.Became[n.State]++
		m.log(membership.Debug, "singleton: manager changed state", append(attrs, membership.Attr{Key: "from", Value: n.From.String()})...)
	case singleton.Ignored:
		m.count.Ignored++
		m.log(membership.Debug, "singleton: message ignored",
			append(attrs, membership.Attr{Key: "from", Value: n.Peer}, membership.Attr{Key: "message", Value: n.Message.String()})...)
	case singleton.Stuck:
		m.count.Stuck++
		m.log(membership.Warn, "singleton: no reply to the hand-over request, restarting the hand-over",
			append(attrs, membership.Attr{Key: "peer", Value: n.Peer}, membership.Attr{Key: "message", Value: n.Message.String()})...)
	}
}

// sendSingleton sends a message of a manager or proxy. Messages to this node are handled directly.
func (m *Machine) sendSingleton(to identity.Node, msg singleton.Message) {
	m.count.SingletonSent[msg.Kind]++
	if to == m.self {
		m.singletonReceive(m.self, msg)
		return
	}
	m.out.Send = append(m.out.Send, membership.Send{To: to, Kind: KindSingleton, Data: singleton.AppendMessage(nil, msg)})
}

func (m *Machine) singletonReceive(from identity.Node, msg singleton.Message) {
	m.count.SingletonReceived[msg.Kind]++
	switch msg.Kind {
	case singleton.Identified, singleton.InstanceGone:
		if p := m.findProxy(msg.Singleton); p != nil {
			m.proxyEffects(p, p.machine.Receive(m.now, from, msg))
			return
		}
		m.count.Refused++
	case singleton.HandOverToMe, singleton.HandOverInProgress, singleton.HandOverDone, singleton.TakeOverFromMe, singleton.Identify:
		m.hostedStep(m.find(msg.Singleton), singleton.Received{From: from, Message: msg})
	}
}

func (m *Machine) findProxy(name string) *proxy {
	i, found := slices.BinarySearchFunc(m.proxies, name, func(p *proxy, name string) int { return cmp.Compare(p.name, name) })
	if !found {
		return nil
	}
	return m.proxies[i]
}

func (m *Machine) forward(in Forward) {
	p := m.findProxy(in.Singleton)
	if p == nil || m.stopped {
		m.out.Dropped = append(m.out.Dropped, in)
		return
	}
	m.proxyEffects(p, p.machine.Send(in.Message))
}

// CloseProxy removes a proxy and its buffered messages.
func (m *Machine) CloseProxy(name string) {
	m.proxies = slices.DeleteFunc(m.proxies, func(p *proxy) bool { return p.name == name })
}

// Withdraw removes a message that its proxy has buffered.
func (m *Machine) Withdraw(f Forward) {
	if p := m.findProxy(f.Singleton); p != nil {
		p.machine.Withdraw(f.Message)
	}
}

func (m *Machine) proxyEffects(p *proxy, e singleton.ProxyEffects[uint64]) {
	for _, id := range e.Dropped {
		m.out.Dropped = append(m.out.Dropped, Forward{p.name, id})
	}
	for _, id := range e.Forward {
		m.out.Forward = append(m.out.Forward, Forwarded{Forward{p.name, id}, e.To})
	}
	if e.Ask.Kind != 0 {
		m.sendSingleton(e.To, e.Ask)
	}
	if e.Silent {
		m.log(membership.Warn, "singleton: the oldest member does not confirm that it runs the instance",
			membership.Attr{Key: "singleton", Value: p.name}, membership.Attr{Key: "member", Value: e.To})
	}
}
