// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// maxAdminPages is how many answers a state may be made of.
const maxAdminPages = 1000

// Admin asks nodes on behalf of an operator, who is no node. Its methods are safe for concurrent use.
type Admin struct{ asker transport.AdminClient }

// NewAdmin returns an Admin that asks through what a plugin offers, such as nats.ConnectOperator. That stays the caller's.
func NewAdmin(asker transport.AdminClient) *Admin { return &Admin{asker} }

// State returns what a node knows, or any node if the name is empty. Errors are those of transport.AdminClient, or what the node says.
func (a *Admin) State(ctx context.Context, node string) (*Summary, error) {
	answer, err := a.ask(ctx, node, AdminRequest{Command: AdminState})
	if err != nil {
		return nil, err
	}
	all := answer.State
	for range maxAdminPages {
		if all == nil || !all.More || len(all.Members) == 0 {
			break
		}
		self, err := identity.Parse(all.Self)
		if err != nil {
			return nil, fmt.Errorf("cluster: the answer of %.150q: %w", all.Self, err)
		}
		next, err := a.ask(ctx, self.Name, AdminRequest{Command: AdminState, After: all.Members[len(all.Members)-1].Node})
		if err != nil {
			return nil, err
		}
		if next.State == nil {
			break
		}
		all.Members, all.More = append(all.Members, next.State.Members...), next.State.More
	}
	if all == nil {
		return nil, errors.New("cluster: the node has given no state")
	}
	return all, nil
}

// Leave lets a member leave: see Node.Leave. Who is a name, or a name and a UID as identity.Node.String writes it. It is asked of the node with
// a name, or of any if that is empty. The error matches ErrNotMember if there is no such member.
func (a *Admin) Leave(ctx context.Context, node, who string) error {
	_, err := a.ask(ctx, node, AdminRequest{Command: AdminLeave, Node: who})
	return err
}

// Down says that a member is dead: see Node.Down. The rest is as in Leave.
func (a *Admin) Down(ctx context.Context, node, who string) error {
	_, err := a.ask(ctx, node, AdminRequest{Command: AdminDown, Node: who})
	return err
}

// PrepareForShutdown announces that the whole cluster is going to stop: see Node.PrepareForShutdown.
func (a *Admin) PrepareForShutdown(ctx context.Context, node string) error {
	_, err := a.ask(ctx, node, AdminRequest{Command: AdminPrepare})
	return err
}

func (a *Admin) ask(ctx context.Context, node string, r AdminRequest) (*AdminAnswer, error) {
	request, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", r.Command, err)
	}
	b, err := a.asker.Ask(ctx, node, request)
	if err != nil {
		return nil, fmt.Errorf("cluster: ask for %s: %w", r.Command, err)
	}
	var answer AdminAnswer
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("cluster: the answer to %s can't be read: %w", r.Command, err)
	}
	if answer.Error != "" {
		return nil, &AdminError{Command: r.Command, Text: answer.Error, notMember: answer.NotMember}
	}
	return &answer, nil
}

// AdminError is what a node says that could not do what it was asked.
type AdminError struct {
	Command AdminCommand
	Text    string

	notMember bool
}

func (e *AdminError) Error() string {
	return fmt.Sprintf("cluster: %s: the node says: %s", e.Command, e.Text)
}

// Is reports whether the error is ErrNotMember.
func (e *AdminError) Is(target error) bool { return e.notMember && target == ErrNotMember }
