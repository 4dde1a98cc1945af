// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command voting is an example of replicated data: an election with three polling stations that all
// take votes at any time.
//
//	go run ./examples/voting
//
// The stations store the set of voters of each choice instead of a counter. So a voter counts once,
// even if the vote was sent to two stations.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/examples/internal/nodes"
)

// station takes votes on one node.
type station struct{ replicator *ddata.Replicator }

// ballot is a set of voters for each choice.
const ballot = ddata.Key[crdt.ORMultiMap[string, string]]("ballot")

// attempts counts all votes, including invalid ones.
const attempts = ddata.Key[crdt.GCounter]("attempts")

var errVoted = errors.New("has voted already")

// vote votes for a choice. If a voter votes twice at once on two nodes, both votes may be accepted:
// see count.
func (s station) vote(ctx context.Context, voter, choice string) error {
	_, err := ddata.Update(ctx, s.replicator, attempts, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) {
		return c.Add(s.replicator.Self(), 1), nil
	})
	if err != nil {
		return err
	}
	// Read the value of a majority before changing it.
	if _, err = ddata.Get(ctx, s.replicator, ballot, ddata.ReadMajority()); err != nil && !errors.Is(err, ddata.ErrNotFound) {
		return err
	}
	_, err = ddata.Update(ctx, s.replicator, ballot, ddata.WriteMajority(), func(b crdt.ORMultiMap[string, string]) (crdt.ORMultiMap[string, string], error) {
		for votes, err := range b.All() {
			if err != nil || votes.Value.Contains(voter) {
				return b, errors.Join(err, errVoted)
			}
		}
		return b.Add(s.replicator.Self(), choice, voter)
	})
	return err
}

// count returns the number of votes for each choice. A voter with two choices counts for none.
func (s station) count(ctx context.Context) (map[string]int, error) {
	b, err := ddata.Get(ctx, s.replicator, ballot, ddata.ReadMajority())
	if err != nil {
		return nil, err
	}
	choices := map[string][]string{} // by voter
	for votes, err := range b.All() {
		if err != nil {
			return nil, err
		}
		for voter, err := range votes.Value.All() {
			if err != nil {
				return nil, err
			}
			choices[voter] = append(choices[voter], votes.Key)
		}
	}
	result := map[string]int{}
	for _, chosen := range choices {
		if len(chosen) == 1 {
			result[chosen[0]]++
		}
	}
	return result, nil
}

func run(ctx context.Context) (err error) {
	c, err := nodes.Start(ctx, "station", 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	replicators, err := c.Replicate(ctx, ddata.Config{})
	if err != nil {
		return err
	}
	for i, v := range []struct{ voter, choice string }{
		{"ann", "tea"}, {"bob", "coffee"}, {"ann", "coffee"}, {"cid", "tea"}, {"dan", "tea"},
	} {
		at := i % len(replicators)
		switch err = (station{replicators[at]}).vote(ctx, v.voter, v.choice); {
		case err == nil:
			fmt.Printf("station-%d: %s votes for %s\n", at, v.voter, v.choice)
		case errors.Is(err, errVoted):
			fmt.Printf("station-%d: %s %v\n", at, v.voter, errVoted)
		default:
			return err
		}
	}
	c.Crash(2)
	fmt.Println("station-2 crashes")
	result, err := station{replicators[1]}.count(ctx)
	if err != nil {
		return err
	}
	fmt.Println("station-1 counts", result)
	n, err := ddata.Get(ctx, replicators[0], attempts, ddata.ReadMajority())
	fmt.Println("attempts:", n.Value())
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
