import { formatTime } from '../ingest/run-event/times.ts';
import { type Figures, figureColumns } from './descendant-figures.ts';
import { type RunWithoutDottedOrder, TraceTree } from './dotted-orders.ts';
import { defaultRunType, previewCharacters, type RunColumn, type RunUse, type Share } from './run-columns.ts';
import type { TracedRunRow } from './run-rows.ts';
import type { TraceTimeRange } from './trace-facts.ts';

/** Data about runs that is not in their rows. It is read only if a field needs it. */
export interface RelatedData {
  readonly tenantId: string;
  /** Trees by trace; present for the traces of runs without dotted_order if it is selected. */
  readonly trees: ReadonlyMap<string, TraceTree>;
  /** By run, as JSON; runs without values are absent. */
  readonly feedbackStats: ReadonlyMap<string, string>;
  readonly attachmentUrls: ReadonlyMap<string, string>;
  /** Shares by trace; traces that are not shared are absent. */
  readonly shares: ReadonlyMap<string, Share>;
  /** Uses in datasets and annotation queues, by run; runs without any are absent. */
  readonly uses: ReadonlyMap<string, RunUse>;
  /** Dataset by project; projects that are not experiments are absent. */
  readonly datasets: ReadonlyMap<string, string>;
  /** Tokens and costs of the model calls among the descendants of each run, by run. */
  readonly figures: ReadonlyMap<string, Figures>;
  /** All descendants and the direct children of each run, by run. */
  readonly children: ReadonlyMap<string, { readonly all: readonly string[]; readonly direct: readonly string[] }>;
  /** Time at which the first event of each trace was accepted, in microseconds since 1970, by trace. */
  readonly firstReceived: ReadonlyMap<string, number>;
  /** Time of the first token of any model call of each trace, in microseconds since 1970, by trace. */
  readonly firstTokens: ReadonlyMap<string, number>;
  readonly spans: ReadonlyMap<string, TraceTimeRange>;
  /** Position of each trace in its thread, from 1, by trace. */
  readonly turns: ReadonlyMap<string, number>;
}

/** Kinds of data that are read separately, each with one query. */
export type RelatedKind =
  | 'feedbackStats'
  | 'attachmentUrls'
  | 'shares'
  | 'uses'
  | 'datasets'
  | 'children'
  | 'figures'
  | 'firstReceived'
  | 'firstTokens'
  | 'spans'
  | 'turns';

/** One field of the response: the columns that it needs, and its JSON text. Stored JSON is returned byte for byte. */
export interface RunField {
  readonly columns: readonly RunColumn[];
  readonly relatedKind?: RelatedKind;
  json(run: TracedRunRow, related: RelatedData): Buffer | string;
}

export function createField(
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

export const quote = (text: string | undefined) => (text === undefined ? undefined : JSON.stringify(text));
const formatOptionalTime = (micros: number | undefined) =>
  micros === undefined ? undefined : `"${formatTime(micros)}"`;

export const nullField = createField([], () => 'null');
const createTextField = (column: RunColumn) => createField([column], (run) => quote(run.text(column)));
const createStoredField = (column: RunColumn, absent = 'null') =>
  createField([column], (run) => run.bytes(column) ?? absent);
export const createFigureReader = (name: keyof typeof figureColumns) => (run: TracedRunRow, related: RelatedData) =>
  related.figures.get(run.key.runId)?.get(name) ?? run.text(figureColumns[name]);
const createCountField = (name: keyof typeof figureColumns) =>
  createField([figureColumns[name]], (run, related) => createFigureReader(name)(run, related) ?? '0', 'figures');
const createCostField = (name: keyof typeof figureColumns) =>
  createField([figureColumns[name]], (run, related) => quote(createFigureReader(name)(run, related)), 'figures');
const createTimeField = (column: RunColumn) => createField([column], (run) => formatOptionalTime(run.number(column)));
const createKeyField = (json: (run: TracedRunRow, related: RelatedData) => string) => createField([], json);
const formatIdList = (ids: readonly string[]) => JSON.stringify(ids);

const noTree = new TraceTree([]);
const findTree = (run: TracedRunRow, related: RelatedData) => related.trees.get(run.key.traceId) ?? noTree;
const listAncestorsOf = (run: TracedRunRow, related: RelatedData) =>
  findTree(run, related).listAncestorIds(toTraceMember(run));
const dottedOrderColumns: readonly RunColumn[] = ['dottedOrder', 'parentRunId', 'traceTimeMicros'];

/** Every field of a run, in the order of the response. Source: the public run schema (v1). */
export const runFields = {
  id: createKeyField((run) => `"${run.key.runId}"`),
  name: createField(['name'], (run) => quote(run.text('name') ?? '')),
  run_type: createField(['runType'], (run) => quote(run.text('runType') ?? defaultRunType)),
  start_time: createTimeField('startedAtMicros'),
  end_time: createTimeField('endedAtMicros'),
  status: createField(['failed', 'endedAtMicros'], (run) => `"${deriveStatus(run)}"`),
  error: createStoredField('error'),
  extra: createStoredField('extra'),
  events: createStoredField('events'),
  // Clients expect `inputs` to be an object.
  inputs: createStoredField('inputs', '{}'),
  inputs_preview: createField(['inputsPreview'], (run) => quote(truncate(run.text('inputsPreview')))),
  inputs_s3_urls: nullField,
  outputs: createStoredField('outputs'),
  outputs_preview: createField(['outputsPreview'], (run) => quote(truncate(run.text('outputsPreview')))),
  outputs_s3_urls: nullField,
  serialized: createStoredField('serialized'),
  tags: createStoredField('tags'),
  trace_id: createKeyField((run) => `"${run.key.traceId}"`),
  dotted_order: createField(dottedOrderColumns, (run, related) =>
    quote(findTree(run, related).buildDottedOrder(toTraceMember(run))),
  ),
  parent_run_id: createField(dottedOrderColumns, (run, related) =>
    quote(run.text('parentRunId') ?? listAncestorsOf(run, related).at(-1)),
  ),
  parent_run_ids: createField(dottedOrderColumns, (run, related) => formatIdList(listAncestorsOf(run, related))),
  child_run_ids: createField(
    [],
    (run, related) => formatIdList(related.children.get(run.key.runId)?.all ?? []),
    'children',
  ),
  direct_child_run_ids: createField(
    [],
    (run, related) => formatIdList(related.children.get(run.key.runId)?.direct ?? []),
    'children',
  ),
  execution_order: createKeyField(() => '1'),
  session_id: createKeyField((run) => `"${run.key.projectId}"`),
  reference_example_id: createTextField('referenceExampleId'),
  reference_dataset_id: createField([], (run, related) => quote(related.datasets.get(run.key.projectId)), 'datasets'),
  manifest_id: nullField,
  manifest_s3_id: nullField,
  total_tokens: createCountField('total_tokens'),
  prompt_tokens: createCountField('prompt_tokens'),
  completion_tokens: createCountField('completion_tokens'),
  prompt_token_details: createDetailField('prompt_token_details'),
  completion_token_details: createDetailField('completion_token_details'),
  total_cost: createCostField('total_cost'),
  prompt_cost: createCostField('prompt_cost'),
  completion_cost: createCostField('completion_cost'),
  prompt_cost_details: createDetailField('prompt_cost_details'),
  completion_cost_details: createDetailField('completion_cost_details'),
  price_model_id: createTextField('priceModelId'),
  first_token_time: createTimeField('firstTokenTimeMicros'),
  feedback_stats: createField([], (run, related) => related.feedbackStats.get(run.key.runId), 'feedbackStats'),
  s3_urls: createField([], (run, related) => related.attachmentUrls.get(run.key.runId), 'attachmentUrls'),
  app_path: createField(['startedAtMicros'], (run, related) => quote(buildAppPath(run, related.tenantId))),
  thread_id: createTextField('threadId'),
  in_dataset: createField([], (run, related) => String(related.uses.get(run.key.runId)?.inDataset ?? false), 'uses'),
  last_queued_at: createField(
    [],
    (run, related) => formatOptionalTime(related.uses.get(run.key.runId)?.lastQueuedMicros),
    'uses',
  ),
  share_token: createField([], (run, related) => quote(related.shares.get(run.key.traceId)?.token), 'shares'),
  trace_tier: createTextField('traceTier'),
  ttl_seconds: createField(['lifetimeSeconds'], (run) => run.text('lifetimeSeconds')),
  trace_upgrade: createKeyField(() => 'false'),
  messages: nullField,
  inserted_at: createTimeField('receivedAtMicros'),
  trace_first_received_at: createField(
    ['traceTimeMicros'],
    (run, related) => formatOptionalTime(related.firstReceived.get(run.key.traceId)),
    'firstReceived',
  ),
  trace_min_start_time: createField(
    [],
    (run, related) => formatOptionalTime(related.spans.get(run.key.traceId)?.firstMicros),
    'spans',
  ),
  trace_max_start_time: createField(
    [],
    (run, related) => formatOptionalTime(related.spans.get(run.key.traceId)?.lastMicros),
    'spans',
  ),
} as const satisfies Record<string, RunField>;

export type RunFieldName = keyof typeof runFields;

/** Needs the columns of {@link dottedOrderColumns}. */
export function toTraceMember({ key, text, number }: TracedRunRow): RunWithoutDottedOrder {
  return {
    traceId: key.traceId,
    runId: key.runId,
    startTimeMicros: key.startTimeMicros,
    parentRunId: text('parentRunId'),
    dottedOrder: text('dottedOrder'),
    traceTimeMicros: number('traceTimeMicros') ?? key.startTimeMicros,
  };
}

/** Derives the status of a run. The status is derived on read, so that late events cannot contradict it. */
function deriveStatus(run: TracedRunRow): string {
  if (run.bytes('failed') !== undefined) return 'error';
  return run.bytes('endedAtMicros') === undefined ? 'pending' : 'success';
}

export function truncate(start: string | undefined): string | undefined {
  const characters = start === undefined ? [] : [...start];
  return characters.length > previewCharacters ? `${characters.slice(0, previewCharacters).join('')}…` : start;
}

function createDetailField(name: string): RunField {
  // Costs are decimals in text form, as in all other fields.
  const shown = name.includes('cost') ? String : (value: unknown) => value;
  return createField(
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

function buildAppPath(run: TracedRunRow, tenantId: string): string {
  const { projectId, runId, traceId } = run.key;
  const startTime = encodeURIComponent(formatTime(run.number('startedAtMicros') ?? run.key.startTimeMicros));
  return `/o/${tenantId}/projects/p/${projectId}/r/${runId}?trace_id=${traceId}&start_time=${startTime}`;
}
