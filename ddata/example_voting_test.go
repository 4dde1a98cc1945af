// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// poll counts each voter once, even if the votes arrive on different nodes: it stores sets of
// voters instead of counters.
type poll struct{ replicator *ddata.Replicator }

// ballot is a set of voters for each choice.
const ballot = ddata.Key[crdt.ORMultiMap[string, string]]("ballot")

// attempts counts all votes, including invalid ones.
const attempts = ddata.Key[crdt.GCounter]("attempts")

var errVoted = errors.New("has voted already")

// vote votes for a choice. If a voter concurrently votes twice on two nodes, both votes may be
// accepted: see count.
func (p poll) vote(ctx context.Context, voter, choice string) error {
	_, err := ddata.Update(ctx, p.replicator, attempts, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) {
		return c.Add(p.replicator.Self(), 1), nil
	})
	if err != nil {
		return err
	}
	// Read the value of a majority before changing it.
	if _, err = ddata.Get(ctx, p.replicator, ballot, ddata.ReadMajority()); err != nil && !errors.Is(err, ddata.ErrNotFound) {
		return err
	}
	_, err = ddata.Update(ctx, p.replicator, ballot, ddata.WriteMajority(), func(b crdt.ORMultiMap[string, string]) (crdt.ORMultiMap[string, string], error) {
		for votes, err := range b.All() {
			if err != nil || votes.Value.Contains(voter) {
				return b, errors.Join(err, errVoted)
			}
		}
		return b.Add(p.replicator.Self(), choice, voter)
	})
	return err
}

// count returns the number of votes for each choice. A voter with two choices counts for none.
func (p poll) count(ctx context.Context) (map[string]int, error) {
	b, err := ddata.Get(ctx, p.replicator, ballot, ddata.ReadMajority())
	if err != nil {
		return nil, err
	}
	choices, of := map[string]int{}, map[string][]string{}
	for votes, err := range b.All() {
		if err != nil {
			return nil, err
		}
		for voter, err := range votes.Value.All() {
			if err != nil {
				return nil, err
			}
			of[voter] = append(of[voter], votes.Key)
		}
	}
	for _, chosen := range of {
		if len(chosen) == 1 {
			choices[chosen[0]]++
		}
	}
	return choices, nil
}

// A counter of all attempts, and votes that count once per voter.
func Example_voting() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	for _, vote := range []struct {
		at            poll
		voter, choice string
	}{{poll{a}, "ann", "tea"}, {poll{b}, "bob", "coffee"}, {poll{b}, "ann", "coffee"}, {poll{a}, "cid", "tea"}} {
		if err := vote.at.vote(ctx, vote.voter, vote.choice); errors.Is(err, errVoted) {
			fmt.Println(vote.voter, errVoted)
		} else if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(poll{b}.count(ctx))
	n, err := ddata.Get(ctx, a, attempts, ddata.ReadAll())
	fmt.Println(n.Value(), "votes came in", err)
	// Output:
	// ann has voted already
	// map[coffee:1 tea:2] <nil>
	// 4 votes came in <nil>
}
