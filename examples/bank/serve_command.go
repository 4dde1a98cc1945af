// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// serveCmd answers HTTP.
type serveCmd struct {
	Addr string `default:"127.0.0.1:8080" help:"Where to listen, HOST:PORT. The branches of --nodes have this port and the following ones."`

	clusterFlags
}

// The stores of the coordinator's state: where it keeps the home of each shard of accounts.
const (
	stateJournal = "journal"
	stateDDATA   = "ddata"
)

// maxNodes is how many branches one process may be.
const maxNodes = 20

// clusterFlags say in which cluster a bank serves, if in any.
type clusterFlags struct {
	Nodes       int           `placeholder:"N" help:"Run N branches of a cluster in this process, each with an API of its own. They share the journal, and a NATS server that runs in this process, too, unless --nats names one."`
	Join        []string      `placeholder:"NAMES" help:"Be one branch of a cluster of processes: join it by way of the branches with these names, of which the first one founds it. It needs --name, --nats and a journal that processes can share."`
	Name        string        `placeholder:"NAME" help:"The name of the branch, for --join."`
	Cluster     string        `placeholder:"NAME" help:"The name of the cluster. Defaults to bank."`
	NATS        []string      `name:"nats" placeholder:"URL" help:"The NATS servers by which branches reach each other. With --join they default to those that REFOLD_NATS names."`
	TokenFile   string        `name:"nats-token-file" env:"REFOLD_NATS_TOKEN_FILE" placeholder:"FILE" help:"A file that holds the token for them, or user:password."`
	State       string        `placeholder:"journal|ddata" help:"Where it is kept which branch has which accounts: in the journal, or in the memory of the branches. Defaults to journal."`
	StableAfter time.Duration `placeholder:"TIME" help:"For how long nothing may have changed before a branch that can't be reached is given up. The same for all. Defaults to 5s."`
}

func (f *clusterFlags) clustered() bool { return f.Nodes != 0 || len(f.Join) > 0 }

// check returns what is wrong with the flags, and sets defaults. A whole cluster in this process must not meet servers that the environment
// names for other commands.
func (f *clusterFlags) check(journal string, getenv func(string) string) error {
	kind, _, _ := strings.Cut(journal, ":")
	if servers := getenv("REFOLD_NATS"); len(f.Join) > 0 && len(f.NATS) == 0 && servers != "" {
		f.NATS = strings.Split(servers, ",")
	}
	switch {
	case f.Nodes != 0 && len(f.Join) > 0:
		return errors.New("--nodes runs a whole cluster, --join one branch of one: only one of them can be")
	case f.Nodes < 0 || f.Nodes > maxNodes:
		return fmt.Errorf("--nodes %d: it has to be 1 to %d", f.Nodes, maxNodes)
	case len(f.Join) == 0 && f.Name != "":
		return errors.New("--name is for --join")
	case !f.clustered():
		return f.checkUnused()
	case f.State != "" && f.State != stateJournal && f.State != stateDDATA:
		return fmt.Errorf("--state %q: it has to be %s or %s", f.State, stateJournal, stateDDATA)
	case f.StableAfter < 0 || f.StableAfter > 0 && f.StableAfter < time.Second:
		return fmt.Errorf("--stable-after %v: it has to be at least 1s", f.StableAfter)
	case f.Nodes > 0:
	case f.Name == "":
		return errors.New("--join needs --name: what this branch is called")
	case len(f.NATS) == 0:
		return errors.New("--join needs --nats: the servers by which branches reach each other")
	case kind == "leveldb":
		return errors.New("--join and --journal leveldb: do not go together: a directory is for one process, and all branches need the same journal; " +
			"name one that processes can share, such as postgres:, or run all branches in one process with --nodes")
	case kind == "inmem":
		return errors.New("--join and --journal inmem: do not go together: each process would have accounts of its own; " +
			"name a journal that processes can share, such as postgres:, or run all branches in one process with --nodes")
	}
	if f.Cluster == "" {
		f.Cluster = "bank"
	}
	if f.State == "" {
		f.State = stateJournal
	}
	if f.StableAfter == 0 {
		f.StableAfter = 5 * time.Second
	}
	return nil
}

// checkUnused returns which flag says something about a cluster when there is none. The token may come from the environment, which is
// for other commands as well.
func (f *clusterFlags) checkUnused() error {
	for _, flag := range []struct {
		name string
		set  bool
	}{{"--cluster", f.Cluster != ""}, {"--state", f.State != ""}, {"--stable-after", f.StableAfter != 0}} {
		if flag.set {
			return fmt.Errorf("%s is about a cluster: it needs --nodes or --join", flag.name)
		}
	}
	return nil
}

// members is how many branches there have to be before accounts are hosted, so that the first one does not get all.
func (f *clusterFlags) members() int {
	if f.Nodes > 0 {
		return f.Nodes
	}
	return len(f.Join)/2 + 1
}
