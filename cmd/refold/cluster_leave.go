// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/transport"
)

// clusterLeaveCommand is "refold cluster leave".
type clusterLeaveCommand struct {
	waitFlags `kong:"set='until=it is gone',set='limit=2m'"`

	Node string `arg:"" help:"The name of the member, or the name and the UID as members shows them."`
}

// Run lets a member leave.
func (c *clusterLeaveCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	return common.with(func(n *nodes) error {
		who, alone, err := c.find(ctx, common, n)
		if err == nil {
			err = n.members.Leave(ctx, common.Ask, who)
		}
		if err == nil {
			_, err = fmt.Fprintf(env.Stdout, "%s leaves\n", c.Node)
		}
		if err != nil || !c.Wait {
			return err
		}
		if err = c.await(ctx, common, n, who, alone); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is gone\n", c.Node)
		return err
	})
}

// find returns which incarnation is waited for, and whether nobody answers once that is gone. A member that is
// not found is left to the node to report.
func (c *clusterLeaveCommand) find(ctx context.Context, common *clusterCommand, n *nodes) (who string, alone bool, err error) {
	if !c.Wait {
		return c.Node, false, nil
	}
	s, err := n.members.State(ctx, common.Ask)
	if err != nil {
		return "", false, err
	}
	who = c.Node
	for i := range s.Members {
		if m := &s.Members[i]; m.Status != cluster.Down.String() && strings.HasPrefix(m.Node, c.Node+"#") {
			who = m.Node
		}
	}
	return who, last(s, common, who), nil
}

// last reports whether nobody is left to answer once a member is gone.
func last(s *cluster.Summary, common *clusterCommand, who string) bool {
	if name, _, _ := strings.Cut(who, "#"); name == common.Ask {
		return true
	}
	return !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool {
		return m.Node != who && m.Status != cluster.Down.String() && m.Status != cluster.Exiting.String()
	})
}

// await waits until a member is gone. That nobody answers meanwhile is no reason to give up.
func (c *clusterLeaveCommand) await(ctx context.Context, common *clusterCommand, n *nodes, who string, alone bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	for {
		s, err := n.members.State(ctx, common.Ask)
		switch {
		case err == nil && !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool { return m.Node == who }):
			return nil
		case err == nil:
			alone = last(s, common, who)
		case alone && errors.Is(err, transport.ErrNoNode):
			return nil
		}
		if late := rest(ctx); late != nil {
			return errors.Join(fmt.Errorf("%s was told to leave, and is not gone yet: %w", who, late), err)
		}
	}
}
