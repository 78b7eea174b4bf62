// A second judge of the same histories: Porcupine, with a model of its own.
//
//	go run . history.jsonl
//
// prints, for each actor, a line with Ok, Illegal or Unknown (it ran out of time).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 60 * time.Second

type outcome struct {
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Names   *[]string `json:"names"`
	Total   *int      `json:"total"`
	Granted *bool     `json:"granted"`
}

type call struct {
	Kind    string  `json:"kind"`
	Actor   string  `json:"actor"`
	Name    string  `json:"name"`
	Bearer  *string `json:"bearer"`
	Start   int64   `json:"start"`
	End     int64   `json:"end"`
	Outcome outcome `json:"outcome"`
	// Only whether the caller may: the first look of a list with a bearer.
	onlyMay bool
}

// Sets are texts of their sorted members, so that states compare by ==.
type state struct {
	suspended            bool
	live, dead, policies string
}

func members(set string) []string { return strings.Fields(set) }

func has(set, one string) bool { return strings.Contains(" "+set+" ", " "+one+" ") }

func with(set, one string) string {
	if has(set, one) {
		return set
	}
	all := append(members(set), one)
	sort.Strings(all)
	return strings.Join(all, " ")
}

func without(set, one string) string {
	kept := []string{}
	for _, other := range members(set) {
		if other != one {
			kept = append(kept, other)
		}
	}
	return strings.Join(kept, " ")
}

func credential(s state, token string) string {
	switch {
	case has(s.dead, token):
		return "token_revoked"
	case s.suspended || !has(s.live, token):
		return "invalid_token"
	}
	return ""
}

// What is answered, empty for done, and the state after.
func respond(s state, c call) (string, state) {
	if c.Kind == "verify" {
		return credential(s, c.Name), s
	}
	if c.Bearer != nil {
		if refusal := credential(s, *c.Bearer); refusal != "" {
			return refusal, s
		}
		if c.Kind != "privileges" && s.policies == "" {
			return "missing_privilege", s
		}
	}
	switch c.Kind {
	case "create":
		if s.suspended {
			return "actor_suspended", s
		}
		s.live = with(s.live, c.Name)
	case "revoke":
		if has(s.dead, c.Name) {
			return "already_revoked", s
		}
		if !has(s.live, c.Name) {
			return "token_not_found", s
		}
		s.live, s.dead = without(s.live, c.Name), with(s.dead, c.Name)
	case "suspend":
		s.suspended = true
	case "resume":
		s.suspended = false
	case "grant":
		s.policies = with(s.policies, c.Name)
	case "withdraw":
		if !has(s.policies, c.Name) {
			return "policy_not_found", s
		}
		s.policies = without(s.policies, c.Name)
	}
	return "", s
}

func step(before, input, _ interface{}) (bool, interface{}) {
	s, c := before.(state), input.(call)
	refusal, after := respond(s, c)
	heard := c.Outcome
	if heard.Verdict == "unknown" {
		// It ends after everything else: one that never came takes its place there, and changes nothing.
		return true, after
	}
	if c.onlyMay {
		return refusal == "", s
	}
	if (heard.Verdict == "refused") != (refusal != "") || heard.Reason != refusal {
		return false, s
	}
	if refusal == "" && c.Kind == "privileges" && *heard.Granted != (s.policies != "") {
		return false, s
	}
	if refusal == "" && c.Kind == "list" {
		if *heard.Total != len(members(s.live)) {
			return false, s
		}
		if heard.Names != nil {
			listed := append([]string{}, *heard.Names...)
			sort.Strings(listed)
			return strings.Join(listed, " ") == s.live, s
		}
	}
	return true, after
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: step,
}

func operations(c call) []porcupine.Operation {
	moments := []call{c}
	end := c.End
	switch {
	case c.Outcome.Verdict == "nothing":
		return nil
	case c.Outcome.Verdict == "unknown":
		end = math.MaxInt64
		if c.Kind == "create" {
			// A token that nobody received is revoked by the service.
			undone := c
			undone.Kind, undone.Bearer = "revoke", nil
			moments = append(moments, undone)
		}
	case c.Outcome.Verdict == "ok" && c.Kind == "list" && c.Bearer != nil:
		may, rows := c, c
		may.onlyMay, rows.Bearer = true, nil
		moments = []call{may, rows}
	}
	made := []porcupine.Operation{}
	for _, moment := range moments {
		made = append(made, porcupine.Operation{Input: moment, Call: c.Start, Return: end})
	}
	return made
}

func run(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	parts := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		parts[c.Actor] = append(parts[c.Actor], operations(c)...)
	}
	for actor, part := range parts {
		fmt.Println(actor, porcupine.CheckOperationsTimeout(model, part, patience))
	}
	return lines.Err()
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
