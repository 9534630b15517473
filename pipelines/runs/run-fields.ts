import { formatTime } from '../ingest/run-event/times.ts';
import { type Figures, figureColumns } from './descendant-figures.ts';
import { ancestorIds } from './dotted-orders.ts';
import { previewCharacters, type RunColumn } from './run-columns.ts';
import { defaultRunType } from './run-scope.ts';
import type { TraceSpan } from './trace-facts.ts';
import type { TracedRunRow } from './write-runs.ts';

/** Data of runs that their rows do not contain, read only if a field needs it. */
export interface RelatedData {
  readonly tenantId: string;
  /** By run; contains every run. */
  readonly dottedOrders: ReadonlyMap<string, string>;
  /** By run, as JSON; runs without values are absent. */
  readonly feedbackStats: ReadonlyMap<string, string>;
  readonly attachmentUrls: ReadonlyMap<string, string>;
  /** By run: tokens and costs of the model calls among its descendants. */
  readonly figures: ReadonlyMap<string, Figures>;
  /** By run: all its descendants, and its direct children. */
  readonly children: ReadonlyMap<string, { readonly all: readonly string[]; readonly direct: readonly string[] }>;
  /** By trace: time at which its first event was accepted, in microseconds since 1970. */
  readonly firstReceived: ReadonlyMap<string, number>;
  readonly spans: ReadonlyMap<string, TraceSpan>;
}

/** Kinds of data read separately, each with one query. */
export type RelatedKind = 'feedbackStats' | 'attachmentUrls' | 'children' | 'figures' | 'firstReceived' | 'spans';

/** One field of the response: the columns it needs, and its JSON text. Stored JSON is returned byte for byte. */
export interface RunField {
  readonly columns: readonly RunColumn[];
  readonly relatedKind?: RelatedKind;
  json(run: TracedRunRow, related: RelatedData): Buffer | string;
}

function field(
  columns: readonly RunColumn[],
  json: (run: TracedRunRow, related: RelatedData) => Buffer | string | undefined,
  relatedKind?: RelatedKind,
): RunField {
  return {
    columns,
    json: (run, related) => json(run, related) ?? 'null',
    ...(relatedKind && { relatedKind }),
  };
}

const quoted = (text: string | undefined) => (text === undefined ? undefined : JSON.stringify(text));
const time = (micros: number | undefined) => (micros === undefined ? undefined : `"${formatTime(micros)}"`);

const nothing = field([], () => 'null');
const text = (column: RunColumn) => field([column], (run) => quoted(run.text(column)));
const stored = (column: RunColumn, absent = 'null') => field([column], (run) => run.bytes(column) ?? absent);
const figure = (name: keyof typeof figureColumns) => (run: TracedRunRow, related: RelatedData) =>
  related.figures.get(run.key.runId)?.get(name) ?? run.text(figureColumns[name]);
const count = (name: keyof typeof figureColumns) =>
  field([figureColumns[name]], (run, related) => figure(name)(run, related) ?? '0', 'figures');
const cost = (name: keyof typeof figureColumns) =>
  field([figureColumns[name]], (run, related) => quoted(figure(name)(run, related)), 'figures');
const moment = (column: RunColumn) => field([column], (run) => time(run.number(column)));
const key = (json: (run: TracedRunRow, related: RelatedData) => string) => field([], json);
const list = (ids: readonly string[]) => JSON.stringify(ids);

const dottedOrder = (run: TracedRunRow, related: RelatedData) => related.dottedOrders.get(run.key.runId) ?? '';
const dottedOrderColumns: readonly RunColumn[] = ['dottedOrder', 'parentRunId', 'traceTimeMicros'];

/** Every field of a run, in the order of the response. Source: the public run schema (v1). */
export const runFields = {
  id: key((run) => `"${run.key.runId}"`),
  name: field(['name'], (run) => quoted(run.text('name') ?? '')),
  run_type: field(['runType'], (run) => quoted(run.text('runType') ?? defaultRunType)),
  start_time: moment('startedAtMicros'),
  end_time: moment('endedAtMicros'),
  status: field(['failed', 'endedAtMicros'], (run) => `"${deriveStatus(run)}"`),
  error: stored('error'),
  extra: stored('extra'),
  events: stored('events'),
  // Clients expect `inputs` to be an object.
  inputs: stored('inputs', '{}'),
  inputs_preview: field(['inputsPreview'], (run) => quoted(truncate(run.text('inputsPreview')))),
  inputs_s3_urls: nothing,
  outputs: stored('outputs'),
  outputs_preview: field(['outputsPreview'], (run) => quoted(truncate(run.text('outputsPreview')))),
  outputs_s3_urls: nothing,
  serialized: stored('serialized'),
  tags: stored('tags'),
  trace_id: key((run) => `"${run.key.traceId}"`),
  dotted_order: field(dottedOrderColumns, (run, related) => quoted(dottedOrder(run, related))),
  parent_run_id: field(dottedOrderColumns, (run, related) =>
    quoted(run.text('parentRunId') ?? ancestorIds(dottedOrder(run, related)).at(-1)),
  ),
  parent_run_ids: field(dottedOrderColumns, (run, related) => list(ancestorIds(dottedOrder(run, related)))),
  child_run_ids: field([], (run, related) => list(related.children.get(run.key.runId)?.all ?? []), 'children'),
  direct_child_run_ids: field(
    [],
    (run, related) => list(related.children.get(run.key.runId)?.direct ?? []),
    'children',
  ),
  execution_order: key(() => '1'),
  session_id: key((run) => `"${run.key.projectId}"`),
  reference_example_id: text('referenceExampleId'),
  reference_dataset_id: nothing,
  manifest_id: nothing,
  manifest_s3_id: nothing,
  total_tokens: count('total_tokens'),
  prompt_tokens: count('prompt_tokens'),
  completion_tokens: count('completion_tokens'),
  prompt_token_details: detail('prompt_token_details'),
  completion_token_details: detail('completion_token_details'),
  total_cost: cost('total_cost'),
  prompt_cost: cost('prompt_cost'),
  completion_cost: cost('completion_cost'),
  prompt_cost_details: detail('prompt_cost_details'),
  completion_cost_details: detail('completion_cost_details'),
  price_model_id: nothing,
  first_token_time: moment('firstTokenTimeMicros'),
  feedback_stats: field([], (run, related) => related.feedbackStats.get(run.key.runId), 'feedbackStats'),
  s3_urls: field([], (run, related) => related.attachmentUrls.get(run.key.runId), 'attachmentUrls'),
  app_path: field(['startedAtMicros'], (run, related) => quoted(appPath(run, related.tenantId))),
  thread_id: text('threadId'),
  in_dataset: key(() => 'false'),
  last_queued_at: nothing,
  share_token: nothing,
  trace_tier: text('traceTier'),
  ttl_seconds: field(['lifetimeSeconds'], (run) => run.text('lifetimeSeconds')),
  trace_upgrade: key(() => 'false'),
  messages: nothing,
  inserted_at: moment('receivedAtMicros'),
  trace_first_received_at: field(
    ['traceTimeMicros'],
    (run, related) => time(related.firstReceived.get(run.key.traceId)),
    'firstReceived',
  ),
  trace_min_start_time: field([], (run, related) => time(related.spans.get(run.key.traceId)?.firstMicros), 'spans'),
  trace_max_start_time: field([], (run, related) => time(related.spans.get(run.key.traceId)?.lastMicros), 'spans'),
} as const satisfies Record<string, RunField>;

export type RunFieldName = keyof typeof runFields;

/** The status is derived on read, so that late events cannot contradict it. */
function deriveStatus(run: TracedRunRow): string {
  if (run.bytes('failed') !== undefined) return 'error';
  return run.bytes('endedAtMicros') === undefined ? 'pending' : 'success';
}

function truncate(start: string | undefined): string | undefined {
  const characters = start === undefined ? [] : [...start];
  return characters.length > previewCharacters ? `${characters.slice(0, previewCharacters).join('')}…` : start;
}

function detail(name: string): RunField {
  // Costs are decimals as text, as in all other fields.
  const shown = name.includes('cost') ? String : (value: unknown) => value;
  return field(
    ['usageDetails'],
    (run, related) => {
      const stated = run.text('usageDetails');
      const own = stated === undefined ? undefined : (JSON.parse(stated) as Record<string, unknown>)[name];
      const details = new Map(isObject(own) ? Object.entries(own).map(([key, value]) => [key, shown(value)]) : []);
      for (const [figure, sum] of related.figures.get(run.key.runId) ?? []) {
        if (figure.startsWith(`${name}.`)) {
          details.set(figure.slice(name.length + 1), name.includes('cost') ? sum : Number(sum));
        }
      }
      return details.size > 0 || isObject(own) ? JSON.stringify(Object.fromEntries(details)) : undefined;
    },
    'figures',
  );
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function appPath(run: TracedRunRow, tenantId: string): string {
  const { projectId, runId, traceId } = run.key;
  const startTime = encodeURIComponent(formatTime(run.number('startedAtMicros') ?? run.key.startTimeMicros));
  return `/o/${tenantId}/projects/p/${projectId}/r/${runId}?trace_id=${traceId}&start_time=${startTime}`;
}
