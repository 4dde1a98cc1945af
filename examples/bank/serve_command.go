// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

type serveCmd struct {
	Addr string   `default:"127.0.0.1:8080" help:"Address to listen on, HOST:PORT. With --nodes, the branches use this port and the following ones."`
	Host []string `placeholder:"NAME" help:"Host names for which the API answers. It always answers for IP addresses and localhost."`

	clusterFlags
}

// The stores of the coordinator's state, which contains the node of each shard of accounts.
const (
	stateJournal = "journal"
	stateDDATA   = "ddata"
)

// maxNodes bounds the number of branches in a process.
const maxNodes = 20

// maxStandbys bounds the number of standbys of an account, see sharding.Options.Standbys.
const maxStandbys = 9

// clusterFlags configure the cluster. Without them the bank serves alone.
type clusterFlags struct {
	Nodes       int           `placeholder:"N" help:"Run a cluster of N branches in this process, each with its own API. They share the journal and a NATS server, which runs in this process unless --nats is set."`
	Join        []string      `placeholder:"NAMES" help:"Join a cluster of processes as one branch. NAMES are the branches to contact; the first of them founds the cluster. Needs --name, --nats and a journal that processes can share."`
	Name        string        `placeholder:"NAME" help:"Name of the branch, for --join."`
	Cluster     string        `placeholder:"NAME" help:"Name of the cluster. Defaults to bank."`
	NATS        []string      `name:"nats" placeholder:"URL" help:"The NATS servers. With --join they default to those in REFOLD_NATS."`
	TokenFile   string        `name:"nats-token-file" env:"REFOLD_NATS_TOKEN_FILE" placeholder:"FILE" help:"File with the NATS token, or with user:password."`
	CA          string        `name:"nats-ca" placeholder:"FILE" help:"File with the CA certificates for the certificates of the NATS servers. Defaults to those of the system."`
	Plaintext   bool          `name:"nats-allow-plaintext" help:"Allow connections to NATS servers on other machines without TLS."`
	State       string        `placeholder:"journal|ddata" help:"Store of the coordinator's state: the journal, or replicated data in the memory of the branches. Defaults to journal."`
	Standbys    int           `placeholder:"N" help:"Keep the states of the accounts ready on N further branches, so that these continue sooner after the failure of a branch. Each branch then reads all events. Use the same value on all branches. Defaults to 0."`
	StableAfter time.Duration `placeholder:"TIME" help:"Remove an unreachable branch after the membership was stable for this time. It must be equal on all branches. Defaults to 5s."`
	DrainDelay  time.Duration `placeholder:"TIME" help:"After SIGTERM, report not ready on /ready and serve for this time before the branch leaves, so that load balancers send requests to other branches. Needs --join. Defaults to 0."`
}

type probeCmd struct {
	URL string `arg:"" default:"http://127.0.0.1:8080/ready" help:"Address to request. Defaults to ${default}."`
}

func (f *clusterFlags) clustered() bool { return f.Nodes != 0 || len(f.Join) > 0 }

// check validates the flags and sets defaults. A cluster in one process ignores NATS servers from
// the environment.
func (f *clusterFlags) check(journal string, getenv func(string) string) error {
	kind, _, _ := strings.Cut(journal, ":")
	if servers := getenv("REFOLD_NATS"); len(f.Join) > 0 && len(f.NATS) == 0 && servers != "" {
		f.NATS = strings.Split(servers, ",")
	}
	switch {
	case f.Nodes != 0 && len(f.Join) > 0:
		return errors.New("--nodes and --join exclude each other: --nodes runs a complete cluster, --join one branch of a cluster")
	case f.Nodes < 0 || f.Nodes > maxNodes:
		return fmt.Errorf("--nodes %d: must be 1 to %d", f.Nodes, maxNodes)
	case len(f.Join) == 0 && f.Name != "":
		return errors.New("--name needs --join")
	case f.DrainDelay < 0:
		return fmt.Errorf("--drain-delay %v: must not be negative", f.DrainDelay)
	case len(f.Join) == 0 && f.DrainDelay != 0:
		return errors.New("--drain-delay needs --join")
	case !f.clustered() && f.Cluster != "":
		return errors.New("--cluster needs --nodes or --join")
	case !f.clustered() && f.State != "":
		return errors.New("--state needs --nodes or --join")
	case !f.clustered() && f.Standbys != 0:
		return errors.New("--standbys needs --nodes or --join")
	case !f.clustered() && f.StableAfter != 0:
		return errors.New("--stable-after needs --nodes or --join")
	case !f.clustered(): // a token file is accepted, because its default comes from the environment
		return nil
	case f.State != "" && f.State != stateJournal && f.State != stateDDATA:
		return fmt.Errorf("--state %q: must be %s or %s", f.State, stateJournal, stateDDATA)
	case f.Standbys < 0 || f.Standbys > maxStandbys:
		return fmt.Errorf("--standbys %d: must be 0 to %d", f.Standbys, maxStandbys)
	case f.StableAfter < 0 || f.StableAfter > 0 && f.StableAfter < time.Second:
		return fmt.Errorf("--stable-after %v: must be at least 1s", f.StableAfter)
	case f.Nodes > 0:
	case f.Name == "":
		return errors.New("--join needs --name, the name of this branch")
	case len(f.NATS) == 0:
		return errors.New("--join needs --nats, the servers that connect the branches")
	case kind == "leveldb":
		return errors.New("--join cannot use --journal leveldb: because only one process can open a directory, and all branches need the same journal; " +
			"use a journal that processes can share, such as postgres:, or run all branches in one process with --nodes")
	case kind == "inmem":
		return errors.New("--join cannot use --journal inmem: because each process would have its own accounts; " +
			"use a journal that processes can share, such as postgres:, or run all branches in one process with --nodes")
	}
	f.Cluster = cmp.Or(f.Cluster, "bank")
	f.State = cmp.Or(f.State, stateJournal)
	f.StableAfter = cmp.Or(f.StableAfter, 5*time.Second)
	return nil
}

// members returns the number of branches required before accounts are hosted. Without this number,
// the first branch would receive all accounts.
func (f *clusterFlags) members() int {
	if f.Nodes > 0 {
		return f.Nodes
	}
	return len(f.Join)/2 + 1
}
