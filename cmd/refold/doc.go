// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command refold makes new services, inspects journals, clusters, replicated data and shards, and runs
// the benchmarks:
//
//	refold new shop                    makes a module with an entity, its tests and an HTTP service
//	refold events                      lists the persistence IDs of leveldb:./bank-data
//	refold events 'account|42'         prints events
//	refold snapshots 'account|42'      lists snapshots
//	refold verify                      checks that no data is missing or damaged
//	refold rebuild 'account|42'        replays all events and compares the state; --all: of all entities
//	refold tail --tag vip              follows the events of all entities
//	refold copy leveldb:A postgres://B copies a journal to another store
//	refold migrate --check             checks the tables of PostgreSQL
//	refold ddata diff --cluster NAME   compares the replicated data of all nodes
//	refold ddata disk stat --dir DIR   reads the replicated data of stopped nodes
//	refold shards --cluster NAME       prints the shards and entities of each node
//	refold console --cluster NAME      serves a console in the browser
//	refold top --cluster NAME          shows the load of the nodes
//	refold projections --cluster NAME  prints, pauses and rebuilds projections
//	refold groups --cluster NAME       prints the nodes of groups and workers
//	refold remove-sharding-data TYPE   lists, or with --yes removes, the data of sharding in a journal
//	refold bench persist --json        measures a figure and compares it with its goal
//	refold completion bash             prints a script for the completion of commands
//
// The flag --journal selects the journal: leveldb:DIR;
// postgres://USER@HOST/DATABASE?sslmode=verify-full, with schema=NAME for a schema other than
// refold; or postgres: for the database in REFOLD_POSTGRES or the PG... variables. The variable
// REFOLD_JOURNAL sets its default, except for bench, which writes to the journal. Most commands
// open the journal for reading only. The commands copy, migrate, remove-sharding-data and bench can
// write. A LevelDB directory must not be open in another process; a PostgreSQL database may be in
// use.
//
// The exit status is 0 if no problem was found, 1 if problems were found or a goal was missed, and
// 2 if the command failed. The output has no colours.
//
// Commands that need the Go types of entities, such as rebuild, need a program that contains them:
// see package operator.
package main
