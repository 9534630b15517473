import { gzipSync } from 'node:zlib';
import { decodeJson } from '../../pipelines/ingest/otlp/decode-json.ts';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';
import { runToCompletion } from '../pipelines/ingest/run-to-completion.ts';
import type { RunEvent } from './model.ts';
import type { Random } from './random.ts';

export interface WireRequest {
  readonly method: 'POST' | 'PATCH';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** The events in the order in which the server accepts them. */
  readonly events: readonly RunEvent[];
}

export const routes = ['multipart', 'batch', 'single', 'otlp'] as const;
export type Route = (typeof routes)[number];

/** Encodes events for a route. `single` takes one event, `otlp` takes posts with a project (see `toSpanEvent`). */
export function encodeRequest(random: Random, route: Route, events: readonly RunEvent[]): WireRequest {
  switch (route) {
    case 'multipart':
      return multipart(random, events);
    case 'batch': {
      const of = (kind: string) => events.filter((event) => event.kind === kind);
      const list = (kind: string) =>
        `"${kind}":[${of(kind)
          .map((event) => runJson(random, event))
          .join(',')}]`;
      const body = `{${random.shuffled([list('post'), list('patch')]).join(', ')}}`;
      return { ...json('POST', '/runs/batch', body), events: [...of('post'), ...of('patch')] };
    }
    case 'single': {
      const [event] = events as [RunEvent];
      const body = runJson(random, event);
      const request = event.kind === 'post' ? json('POST', '/runs', body) : json('PATCH', `/runs/${event.runId}`, body);
      return { ...request, events };
    }
    case 'otlp':
      return otlp(random, events);
  }
}

function json(method: 'POST' | 'PATCH', path: string, body: string) {
  return { method, path, headers: { 'content-type': 'application/json' }, body: Buffer.from(body) } as const;
}

/** Fields that exist only in the model: the server derives them from other fields. */
const derived = new Set(['prompt_tokens', 'completion_tokens', 'total_tokens']);
const partFields = new Set(['inputs', 'outputs', 'error', 'events', 'extra', 'serialized']);
const nullable = ['inputs', 'outputs', 'extra', 'end_time', 'error', 'name', 'tags'];

function members(random: Random, event: RunEvent): [string, string][] {
  const { project, values, dottedOrder, parentId } = event;
  const list: [string, string][] = [['id', `"${event.runId}"`]];
  // A patch without dotted_order has no trace_id either.
  if (dottedOrder !== undefined || event.kind === 'post') list.push(['trace_id', `"${event.traceId}"`]);
  if (dottedOrder !== undefined) list.push(['dotted_order', `"${dottedOrder}"`]);
  if (parentId !== undefined && (dottedOrder === undefined || random.chance(0.8))) {
    list.push(['parent_run_id', `"${parentId}"`]);
  }
  if (project !== undefined) {
    list.push('id' in project ? ['session_id', `"${project.id}"`] : ['session_name', JSON.stringify(project.name)]);
  }
  for (const [name, value] of Object.entries(values)) {
    if (derived.has(name)) continue;
    const zone = name.endsWith('_time') ? random.pick(['', 'Z', '+00:00']) : '';
    list.push([name, zone === '' ? value : value.replace(/"$/, `${zone}"`)]);
  }
  for (const name of nullable) if (values[name] === undefined && random.chance(0.1)) list.push([name, 'null']);
  return random.chance(0.5) ? list : random.shuffled(list);
}

function objectText(list: readonly [string, string][]): string {
  return `{${list.map(([name, value]) => `"${name}":${value}`).join(',')}}`;
}

function runJson(random: Random, event: RunEvent): string {
  return objectText(members(random, event));
}

const boundary = '----histories';

function multipart(random: Random, events: readonly RunEvent[]): WireRequest {
  const parts: { event: RunEvent; name: string; text: string }[] = [];
  for (const event of events) {
    const all = members(random, event);
    const separateMembers = all.filter(([name]) => partFields.has(name) && random.chance(0.7));
    const name = `${event.kind}.${event.runId}`;
    parts.push({ event, name, text: objectText(all.filter((member) => !separateMembers.includes(member))) });
    for (const [field, text] of separateMembers) parts.push({ event, name: `${name}.${field}`, text });
  }
  const sent = random.chance(0.7) ? parts : random.shuffled(parts);
  const body = Buffer.from(`${sent.map(({ name, text }) => partText(name, text)).join('')}--${boundary}--\r\n`);
  const zipped = random.chance(0.3);
  return {
    method: 'POST',
    path: '/runs/multipart',
    headers: {
      'content-type': `multipart/form-data; boundary=${boundary}`,
      ...(zipped && { 'content-encoding': 'gzip' }),
    },
    body: zipped ? gzipSync(body) : body,
    events: [...new Set(sent.map(({ event }) => event))],
  };
}

function partText(name: string, text: string): string {
  const head = `Content-Disposition: form-data; name="${name}"\r\nContent-Type: application/json`;
  return `--${boundary}\r\n${head}; length=${Buffer.byteLength(text)}\r\n\r\n${text}\r\n`;
}

function otlp(random: Random, events: readonly RunEvent[]): WireRequest {
  const spans = events.map((event) => {
    const time = (value: string) => `${parseTime(JSON.parse(value) as string)}000`;
    const { project } = event;
    const attribute = (key: string, stringValue: string) => ({ key, value: { stringValue } });
    return {
      traceId: event.traceId.replaceAll('-', ''),
      spanId: event.runId.replaceAll('-', '').slice(-16),
      name: JSON.parse(event.values.name as string) as string,
      startTimeUnixNano: time(event.values.start_time as string),
      ...(event.values.end_time && { endTimeUnixNano: time(event.values.end_time) }),
      attributes: [
        attribute('langsmith.span.id', event.runId),
        attribute('langsmith.trace.id', event.traceId),
        attribute('langsmith.span.dotted_order', event.dottedOrder as string),
        attribute('langsmith.span.kind', 'chain'),
        project === undefined || 'name' in project
          ? attribute('langsmith.trace.session_name', project?.name ?? 'default')
          : attribute('langsmith.trace.session_id', project.id),
      ],
    };
  });
  const request = json('POST', '/otel/v1/traces', JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans }] }] }));
  if (random.chance(0.5)) return { ...request, events };
  const body = Buffer.from(runToCompletion(decodeJson(request.body, 100, 1_000_000)).body);
  return { ...request, headers: { 'content-type': 'application/x-protobuf' }, body, events };
}
