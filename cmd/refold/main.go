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
	return operator.Program{About: "Make services, and inspect journals, clusters, replicated data and shards.", Databases: []operator.Database{pgjournal.Database()}, Commands: []operator.Command{
		{Name: "bench", Help: "Run the benchmarks of Refold against the limits of the machine.", Grammar: &benchCommand{}},
		{Name: "cluster", Help: "Inspect the members of a cluster, and make them leave or go down.", Grammar: &clusterCommand{}},
		{Name: "console", Help: "Serve a console in the browser, for a cluster or a journal.", Grammar: &consoleCommand{}},
		{Name: "ddata", Help: "Inspect and compare the replicated data of nodes.", Grammar: &ddataCommand{}},
		{Name: "groups", Help: "Print the nodes of the instances of groups and of workers.", Grammar: &groupsCommand{}},
		{Name: "new", Help: "Make a module with an entity, its tests and an HTTP service.", Grammar: &newCommand{}},
		{Name: "projections", Help: "Inspect, pause and rebuild the projections of a cluster.", Grammar: &projectionsCommand{}},
		{Name: "top", Help: "Show the load of the nodes of a cluster.", Grammar: &topCommand{}},
		{Name: "shards", Help: "Inspect and move shards and their entities.", Grammar: &shardsCommand{}},
		{Name: "remove-sharding-data", Help: "Remove the data of sharding from a journal, while no node runs.", Grammar: &removeCommand{}},
		{Name: "completion", Help: "Print a script that completes commands and flags in a shell.", Grammar: &completionCommand{}},
		{Name: "demo", Help: "Run a demonstration on this machine.", Grammar: &demoCommand{}},
	}}
}
