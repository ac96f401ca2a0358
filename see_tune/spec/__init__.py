"""The YAML that users live in, as frozen and checked values: the first station of the road, and the only reader of YAML.

document    YAML 1.2 text -> plain values, each with its line; --set; defaults beneath
models      StudySpec, TrialSpec: the keys, their types, bounds and defaults
keys        every key by its dotted name, and whether a search may vary it; `words` and `values` stand on it
ranges      the entries of `search` -> domains
conditions  domains -> Space: when each parameter is active
points      trial 0 and `start_with`
strategy    what sampler and pruner can make of the space
load        all of it, in this order: a file -> Loaded, or a SpecError
frozen      a study as it lies in its folder, and what may change when it goes on
fitting     a trial of one study as a point of another
schema      the JSON Schema for editors
"""
