import { buildSegment } from './expected-run.ts';
import { type Draft, days, toSpanEvent } from './histories.ts';
import type { Model, ProjectReference, RunEvent } from './model.ts';
import type { Projects } from './projects.ts';
import type { Random } from './random.ts';
import { encodeRequest, type Route, routes, type WireRequest } from './requests.ts';

export interface PlannedRequest extends WireRequest {
  /** Index of the key that sends it. */
  readonly sender: number;
  /**
   * Whether the request is sent only once, even after a crash. Its traces may then be stored or not, and no other
   * request refers to these traces.
   */
  readonly once: boolean;
}

export interface PhaseDeps {
  readonly random: Random;
  readonly model: Model;
  readonly projects: Projects;
  /** Indices of the keys of each workspace. */
  readonly senders: readonly (readonly number[])[];
  readonly phase: number;
}

/**
 * Plans the requests of one client in one phase, in order. Requests that are repeated until acknowledged are applied to
 * the model at once.
 */
export function planRequests(workspace: number, drafts: readonly Draft[], deps: PhaseDeps): PlannedRequest[] {
  const { random, model } = deps;
  const names = namesOf(workspace, deps);
  const requests: PlannedRequest[] = [];
  const add = (request: WireRequest, once = false) => {
    const planned = { ...request, sender: random.pick(deps.senders[workspace] as number[]), once };
    if (!once) model.apply(planned.sender, planned.events);
    requests.push(planned);
  };
  const waiting = [...drafts];
  while (waiting.length > 0) {
    if (random.chance(0.15))
      add(encodeRequest(random, random.pick<Route>(['multipart', 'batch']), newTraces(workspace, deps)), true);
    const picked = random.pick<Route>([...routes, 'multipart', 'batch']);
    const route = picked === 'otlp' && waiting[0]?.kind === 'patch' ? 'batch' : picked;
    const events = takeEvents(route, waiting, random).map((draft) => toEvent(draft, route, names, deps));
    add(encodeRequest(random, route, events));
    // Sends the whole request again, with the same or another key, like a client that received no response.
    const again = requests.at(-1) as PlannedRequest;
    if (random.chance(0.08)) add(again);
  }
  return requests;
}

/** Takes as many drafts from the front of the queue as one request of the route may contain. */
function takeEvents(route: Route, waiting: Draft[], random: Random): Draft[] {
  const max = route === 'single' ? 1 : random.pick([1, 3, 10, 30, 100]);
  const used = new Set<string>();
  const fits = (draft: Draft) => {
    const identity = `${draft.kind} ${draft.runId}`;
    if (route === 'otlp' && draft.kind === 'patch') return false;
    // A part may appear only once per body; two spans with the same id would be the same run twice.
    if (route !== 'batch' && used.has(identity)) return false;
    used.add(identity);
    return true;
  };
  let count = 0;
  while (count < max && count < waiting.length && fits(waiting[count] as Draft)) count++;
  return waiting.splice(0, Math.max(1, count));
}

/**
 * Returns the project names that drafts may use in this phase. They are chosen so that races between clients cannot
 * change the result.
 */
function namesOf(workspace: number, { projects, phase }: PhaseDeps) {
  const living = projects.existing(workspace);
  const former = projects.formerNames(workspace);
  const deletedNames = projects.list
    .filter((project) => project.workspace === workspace && project.deleted)
    .map(({ name }) => name);
  const free = deletedNames.filter((name) => !former.includes(name));
  const post = [...living.map(({ name }) => name), ...free.slice(0, 2), `made in phase ${phase}, "${workspace}"`];
  return { post, patch: [...post, ...former], ids: living.flatMap(({ id }) => id ?? []) };
}

type Names = ReturnType<typeof namesOf>;

function toEvent(draft: Draft, route: Route, names: Names, deps: PhaseDeps): RunEvent {
  const project = pickProject(draft, names, deps);
  const event: RunEvent = { ...draft, project };
  if (route === 'otlp') return draft.kind === 'post' ? toSpanEvent(event) : event;
  return route === 'single' ? omitLocation(event, deps) : event;
}

function pickProject({ kind, traceId }: Draft, names: Names, { random }: PhaseDeps): ProjectReference | undefined {
  if (random.chance(kind === 'post' ? 0.1 : 0.6)) return undefined;
  const allowed = names[kind];
  // Usually the same name for all events of a trace, as long as that project exists.
  const defaults = Number.parseInt(traceId.slice(0, 6), 16) % allowed.length;
  if (random.chance(0.25) && names.ids.length > 0) return { id: random.pick(names.ids) };
  return { name: random.chance(0.75) ? (allowed[defaults] as string) : random.pick(allowed) };
}

/** Removes the location from some single requests: posts lose dotted_order, and patches have only the id. */
function omitLocation(event: RunEvent, { random, model }: PhaseDeps): RunEvent {
  const trace = model.traceOf(event);
  const isStored = trace?.project !== undefined && trace.runs.has(event.runId);
  if (random.chance(0.5) || (event.kind === 'patch' && !isStored)) return event;
  const { dottedOrder: _none, ...rest } = event;
  if (event.kind === 'patch') return { ...rest, parentId: undefined };
  const start = buildSegment(event.keyMicros, '');
  const text = start.replace(/^(....)(..)(..)T(..)(..)(..)(......)Z$/, '"$1-$2-$3T$4:$5:$6.$7"');
  return { ...rest, traceMicros: event.keyMicros, values: { ...event.values, start_time: text } };
}

function newTraces(workspace: number, { random, projects, phase }: PhaseDeps): RunEvent[] {
  const ids = projects.existing(workspace).flatMap(({ id }) => id ?? []);
  return Array.from({ length: random.between(1, 4) }, () => {
    const traceId = random.uuid();
    const keyMicros = days[phase] as number;
    return {
      kind: 'post',
      workspace,
      traceId,
      runId: traceId,
      dottedOrder: buildSegment(keyMicros, traceId),
      keyMicros,
      traceMicros: keyMicros,
      project: { id: random.pick(ids) },
      values: { name: '"once"', inputs: `{"n":${random.int(1e9)}}` },
    } as const;
  });
}
