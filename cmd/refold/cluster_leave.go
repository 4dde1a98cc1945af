// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/transport"
)

// leavePoll is how often it is asked whether a member is gone.
const leavePoll = 300 * time.Millisecond

// clusterLeaveCommand is "refold cluster leave".
type clusterLeaveCommand struct {
	Node        string        `arg:"" help:"The name of the member, or the name and the UID as members shows them."`
	Wait        bool          `help:"Wait until it is gone."`
	WaitTimeout time.Duration `help:"How long --wait waits." default:"2m"`
}

// Validate checks the flags.
func (c *clusterLeaveCommand) Validate() error {
	if c.WaitTimeout <= 0 {
		return fmt.Errorf("--wait-timeout is %v, it must be more than 0", c.WaitTimeout)
	}
	return nil
}

// Run lets a member leave.
func (c *clusterLeaveCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	return common.with(ctx, func(ctx context.Context, admin *cluster.Admin) error {
		who, alone, err := c.find(ctx, common, admin)
		if err != nil {
			return err
		}
		asked, cancel := context.WithTimeout(ctx, common.Timeout)
		err = admin.Leave(asked, common.Ask, who)
		cancel()
		if err == nil {
			_, err = fmt.Fprintf(env.Stdout, "%s leaves\n", c.Node)
		}
		if err != nil || !c.Wait {
			return err
		}
		if err = c.await(ctx, common, admin, who, alone); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is gone\n", c.Node)
		return err
	})
}

// find returns which incarnation is waited for, and whether nobody answers once that is gone. A member that is
// not found is left to the node to report.
func (c *clusterLeaveCommand) find(ctx context.Context, common *clusterCommand, admin *cluster.Admin) (who string, alone bool, err error) {
	if !c.Wait {
		return c.Node, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, common.Timeout)
	defer cancel()
	s, err := admin.State(ctx, common.Ask)
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
func (c *clusterLeaveCommand) await(ctx context.Context, common *clusterCommand, admin *cluster.Admin, who string, alone bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	ticker := time.NewTicker(leavePoll)
	defer ticker.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, common.Timeout)
		s, err := admin.State(asked, common.Ask)
		cancel()
		switch {
		case err == nil && !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool { return m.Node == who }):
			return nil
		case err == nil:
			alone = last(s, common, who)
		case alone && errors.Is(err, transport.ErrNobody):
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s was told to leave, and is not gone yet: %w", who, context.Cause(ctx)), err)
		}
	}
}
