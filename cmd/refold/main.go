// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
)

func main() { os.Exit(program().Main()) }

func program() operator.Program {
	return operator.Program{About: "Inspect journals, clusters, replicated data and shards.", Databases: []operator.Database{pgjournal.Database()}, Commands: []operator.Command{
		{Name: "bench", Help: "Measure Refold against the limits of the machine.", Grammar: &benchCommand{}},
		{Name: "cluster", Help: "Look at a cluster's members, and let them leave or go down.", Grammar: &clusterCommand{}},
		{Name: "ddata", Help: "Look at replicated data: what nodes hold, and whether it is the same on all.", Grammar: &ddataCommand{}},
		{Name: "shards", Help: "Look at sharded entities: where they are, and let them move.", Grammar: &shardsCommand{}},
		{Name: "remove-sharding-data", Help: "Remove what sharding keeps in a journal, when no node runs.", Grammar: &removeCommand{}},
		{Name: "demo", Help: "Show what Refold does, on this machine.", Grammar: &demoCommand{}},
	}}
}
