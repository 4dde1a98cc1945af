// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// JoinVia begins to join the cluster of a node of which only the name is known; that may be this node itself, which founds a
// cluster then. It does nothing if the node has joined, or joins already. The error matches ErrInvalid, or says why the node
// has ended.
func (n *Node) JoinVia(ctx context.Context, name string) error {
	if err := identity.CheckName(name); err != nil {
		return invalid("%w", err)
	}
	return n.call(ctx, func() { n.member(membership.JoinNode{Name: name}) })
}

// SetVersion tells the version of the application that Config.VersionPending has promised, and lets the node join. The error matches
// ErrInvalid, or says why the node has ended.
func (n *Node) SetVersion(ctx context.Context, version string) error {
	v, err := identity.ParseVersion(version)
	if err != nil {
		return invalid("%w", err)
	}
	return n.call(ctx, func() { n.member(membership.SetVersion{Version: v}) })
}

// Leave lets a member leave the cluster: it hands over what it hosts, and ends. It may be this node. A UID of 0 is whoever has
// the name. Leave returns when this node has noted it; the others follow. The error is ErrNotMember, or says
// why this node has ended.
func (n *Node) Leave(ctx context.Context, who identity.Node) error {
	return n.about(ctx, who, func() { n.member(membership.Leave{Node: who}) })
}

// Down says that a member is dead: it is removed, and what it hosted starts elsewhere. If it lives it ends as soon as it hears
// of that, which in a partition it can't: make sure that it is dead. A UID of 0 is whoever has the name. The error is that of
// Leave.
func (n *Node) Down(ctx context.Context, who identity.Node) error {
	return n.about(ctx, who, func() { n.member(membership.DownNode{Node: who}) })
}

// PrepareForShutdown announces that the whole cluster is going to stop: nobody joins any more, and nothing is
// handed over. The error says why the node has ended.
func (n *Node) PrepareForShutdown(ctx context.Context) error {
	return n.call(ctx, func() { n.member(membership.PrepareForShutdown{}) })
}

// about does something about a member.
func (n *Node) about(ctx context.Context, who identity.Node, f func()) error {
	known := false
	err := n.call(ctx, func() {
		s := n.hub.current()
		if who.UID == 0 {
			_, known = s.Named(who.Name)
		} else {
			_, known = s.Member(who)
		}
		if known {
			f()
		}
	})
	if err == nil && !known {
		err = fmt.Errorf("%w: %v", ErrNotMember, who)
		if who.UID == 0 {
			err = fmt.Errorf("%w: %s", ErrNotMember, who.Name)
		}
	}
	return err
}

// Watch waits until a node is surely gone: it was removed, or it is known to be dead. It returns nil then, also if that was before
// the call. The error is ErrNotMember if nothing is known of the node, or that of ctx, or says why this node has
// ended.
func (n *Node) Watch(ctx context.Context, who identity.Node) error {
	was := false
	s, err := n.until(ctx, func(s *State) bool {
		_, is := s.Member(who)
		was = was || is
		return s.Stopped || s.gone(who) || !is
	})
	switch {
	case err != nil:
		return fmt.Errorf("cluster: watch %v: %w", who, err)
	case s.Stopped:
		return s.Err
	case was || s.gone(who):
		return nil
	}
	return fmt.Errorf("%w: %v", ErrNotMember, who)
}
