import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { runTypes } from '../../pipelines/ingest/run-event/run-event.ts';
import type { SelectName } from '../../pipelines/runs/run-select.ts';
import { describeLimit, findProjectIds, maxLimit, pick, type StoredRecord } from './find-named.ts';
import type { MainApi } from './main-api.ts';
import { buildPage, defaultPageCharacters, defaultPreviewCharacters, maxPageCharacters } from './pages.ts';
import { choice, flag, integer, list, text, uuid } from './parameters.ts';
import { defineTool } from './tool.ts';

/** Parameters of tools that divide their results into pages. As in the original, a number below 0 means 0. */
export const pageParameters = {
  max_chars_per_page: integer({
    description: `Maximum number of characters of the page, at most ${maxPageCharacters}.`,
    minimum: 1,
  }).default(defaultPageCharacters),
  preview_chars: integer({
    description: 'Longer texts are cut to this number of characters, and end with "… (+N chars)". 0: no text is cut.',
    minimum: Number.NEGATIVE_INFINITY,
  }).default(defaultPreviewCharacters),
};

export const pageNumber = integer({
  description: 'Page to return, from 1. total_pages in the result says how many there are.',
  minimum: Number.NEGATIVE_INFINITY,
});

/** Output of tools that divide their results into pages by number of characters. */
export const pageOutput = (items: string, description: string) => ({
  [items]: { type: 'array', description },
  page_number: { type: 'integer' },
  total_pages: { type: 'integer', description: '0 if there are no items.' },
  max_chars_per_page: { type: 'integer' },
  preview_chars: { type: 'integer' },
});

/** The fields that the official Python SDK selects, and therefore the original tool server. */
export const stockFields: readonly SelectName[] = [
  'app_path',
  'completion_cost',
  'completion_tokens',
  'dotted_order',
  'end_time',
  'error',
  'events',
  'extra',
  'feedback_stats',
  'first_token_time',
  'id',
  'inputs',
  'name',
  'outputs',
  'parent_run_id',
  'parent_run_ids',
  'prompt_cost',
  'prompt_tokens',
  'reference_example_id',
  'run_type',
  's3_urls',
  'session_id',
  'start_time',
  'status',
  'tags',
  'total_cost',
  'total_tokens',
  'trace_id',
];

const filterHelp =
  'Expressions compare fields: eq, neq, gt, gte, lt, lte, has, search, joined by and, or, not. Examples: ' +
  'eq(run_type, "llm"), gt(latency, 5), has(tags, "beta"), search("timeout"), ' +
  'and(eq(metadata_key, "user"), eq(metadata_value, "ada")), gt(start_time, "2026-01-31T00:00:00Z"), ' +
  'and(eq(feedback_key, "score"), lt(feedback_score, 0.5)).';

const orders = ['-start_time', 'start_time'] as const;
const orderHelp = '-start_time: newest first; start_time: oldest first.';

export const fetchRuns = defineTool({
  name: 'fetch_runs',
  title: 'Fetch runs',
  description:
    'Fetch runs (steps of traces: model calls, tools, chains, retrievers) of one or more tracing projects, with all their fields. ' +
    'Always pass limit and page_number. One call reads at most `limit` runs (at most 100) that match, and divides them into pages by ' +
    'number of characters; call again with page_number 2, 3, … up to total_pages to read the rest. Long texts are cut to preview_chars. ' +
    'To read one trace, pass trace_id; to find failed runs, error=true; to see one run per trace, is_root=true. To continue beyond 100 ' +
    `runs, add a condition on start_time to filter. ${filterHelp}`,
  parameters: {
    project_name: list({
      description: 'Name or id of the project, or a list of at most 100 of them (a JSON list in a text is accepted).',
      examples: ['my-agent', '["my-agent", "staging"]'],
    }).required(),
    limit: integer({
      description: 'Maximum number of runs to read; more than 100 count as 100.',
      minimum: 1,
    }).required(),
    page_number: pageNumber.default(1),
    trace_id: uuid({ description: 'Only runs of this trace.' }).optional(),
    run_type: choice(runTypes, { description: 'Only runs of this type.' }).optional(),
    error: flag({ description: 'true: only failed runs; false: only runs without an error.' }).optional(),
    is_root: flag({ description: 'true: only root runs, one per trace; false: only child runs.' }).optional(),
    filter: text({ description: 'Condition on the run, such as gt(latency, 5).' }).optional(),
    trace_filter: text({ description: 'Condition on the root run of the trace of the run.' }).optional(),
    tree_filter: text({ description: 'Condition that some run of the same trace satisfies.' }).optional(),
    order_by: choice(orders, { description: orderHelp }).default('-start_time'),
    ordering: choice(orders, { description: 'Another name of order_by.' }).optional(),
    reference_example_id: uuid({ description: 'Only runs of experiments on this example of a dataset.' }).optional(),
    ...pageParameters,
  },
  output: pageOutput('runs', 'Runs with all fields; times are UTC, costs are decimals as text.'),
  run: async (values, { api }) => {
    const order = values.ordering ?? values.order_by;
    const body = {
      session: await findProjectIds(api, values.project_name),
      trace: values.trace_id,
      run_type: values.run_type,
      error: values.error,
      is_root: values.is_root,
      filter: values.filter,
      trace_filter: values.trace_filter,
      tree_filter: values.tree_filter,
      reference_example: values.reference_example_id && [values.reference_example_id],
      order: order === 'start_time' ? 'asc' : 'desc',
      select: stockFields,
    };
    const { runs, isCut, hasMore } = await queryRuns(api, body, Math.min(values.limit, maxLimit));
    const page = buildPage('runs', runs, {
      pageNumber: values.page_number,
      maxCharsPerPage: values.max_chars_per_page,
      previewChars: values.preview_chars,
    });
    const reason = isCut ? 'The runs are large' : 'More runs match';
    const remedy = `${isCut || values.limit >= maxLimit ? '' : 'raise limit or '}add a condition on start_time to filter`;
    const cut = `${reason}: the pages have only the first ${runs.length}. For the others, ${remedy}.`;
    const note = [describeLimit(values.limit).note, hasMore ? cut : undefined].filter(Boolean).join(' ');
    return { ...page, ...(note !== '' && { note }) };
  },
});

/**
 * Reads up to `limitRows` runs that match. `hasMore`: further runs match. `isCut`: they would be within the limit, but the
 * responses would be too large.
 */
export async function queryRuns(
  api: MainApi,
  body: StoredRecord,
  limitRows: number,
): Promise<{ readonly runs: StoredRecord[]; readonly isCut: boolean; readonly hasMore: boolean }> {
  const runs: StoredRecord[] = [];
  let isCut = false;
  let hasMore = false;
  for await (const page of generatePages(api, body, limitRows)) {
    runs.push(...page.runs);
    isCut = page.isLastRead;
    hasMore = page.hasMore;
  }
  return { runs, isCut, hasMore };
}

interface RunsPage {
  readonly runs: StoredRecord[];
  /** There are further pages, but the call must not read them. */
  readonly isLastRead: boolean;
  /** Further runs match. */
  readonly hasMore: boolean;
}

/**
 * Generates pages with up to `limitRows` runs that match. A page can have fewer runs than its limit, because the main API
 * limits its size. Ends early if the pages together are too large.
 */
async function* generatePages(api: MainApi, body: StoredRecord, limitRows: number): AsyncGenerator<RunsPage> {
  let count = 0;
  for (let cursor: string | null | undefined; cursor !== null && count < limitRows; ) {
    const limit = Math.min(maxLimit, limitRows - count);
    const page = (await api.post('/runs/query', { ...body, limit, cursor })) as {
      runs: StoredRecord[];
      cursors?: { next?: string | null };
    };
    count += page.runs.length;
    cursor = page.cursors?.next ?? null;
    const isLastRead = cursor !== null && count < limitRows && !api.mayReadMore();
    yield { runs: page.runs, isLastRead, hasMore: cursor !== null };
    if (isLastRead) return;
  }
}

const maxOutlineRuns = 1_000;
/** Maximum number of runs of the trace that are read to find those of the outline. */
const maxTraceRuns = 10_000;
/** Maximum number of characters of the run, and of the outline. Clients refuse results that a model cannot read. */
const maxShownCharacters = defaultPageCharacters;
const outlineFields = [
  'id',
  'name',
  'run_type',
  'status',
  'start_time',
  'end_time',
  'parent_run_id',
  'dotted_order',
  'total_tokens',
];

export const getRun = defineTool({
  name: 'get_run',
  title: 'Get a run',
  description:
    'Get one run by its id, with an outline of the runs below it: one line for each, indented by depth, with name, type, status, ' +
    'duration, tokens and id. Use it to understand what happened in a trace, then call it again with the id of a run of the outline ' +
    `to see its inputs, outputs and error. Long texts are cut to preview_chars, and further if the run has more than ${maxShownCharacters} ` +
    'characters.',
  parameters: {
    run_id: uuid({ description: 'Id of the run, or of a trace for its root run.' }).required(),
    outline: flag({ description: 'Whether the result has the outline of the runs below.' }).default(true),
    preview_chars: integer({
      description: 'Longer texts are cut to this number of characters. 0: nothing of the run is cut.',
      minimum: Number.NEGATIVE_INFINITY,
    }).default(1_000),
  },
  output: {
    run: { type: 'object', description: 'The run; only some of its fields if it is too large.' },
    outline: {
      type: 'array',
      items: { type: 'string' },
      description: 'The run and those below it, one line for each.',
    },
  },
  run: async ({ run_id: runId, outline, preview_chars: previewChars }, { api }) => {
    const find = async (condition: object) => {
      const page = await api.post('/runs/query', { ...condition, limit: 1, select: stockFields });
      return (page as { runs: StoredRecord[] }).runs[0];
    };
    // The root run of an OpenTelemetry trace has another id than its trace.
    const found = (await find({ id: [runId] })) ?? (await find({ trace: runId, is_root: true }));
    if (found === undefined) throw runlakeError('NOT_FOUND', { what: `Run ${runId}` });
    const shown = fitRun(found, previewChars);
    if (!outline) return shown;
    const trace = { session: [found.session_id], trace: found.trace_id, order: 'asc', select: outlineFields };
    const top = String(found.dotted_order);
    const tree: StoredRecord[] = [];
    let isPartlyRead = false;
    for await (const { runs, hasMore } of generatePages(api, trace, maxTraceRuns)) {
      isPartlyRead = hasMore;
      tree.push(...runs.filter(({ dotted_order: order }) => `${order}`.startsWith(top)));
      if (tree.length > maxOutlineRuns) break;
    }
    const listed = tree.slice(0, maxOutlineRuns).sort(byDottedOrder);
    let characters = 0;
    const lines = listed
      .map((each) => formatLine(each, top))
      .filter((line) => {
        characters += line.length;
        return characters <= maxShownCharacters;
      });
    return {
      ...shown,
      outline: lines,
      ...((isPartlyRead || lines.length < tree.length) && {
        note: `The outline has the first ${lines.length} runs of the tree; the trace has more.`,
      }),
    };
  },
});

/** Returns the run with texts that are cut; if it is too large even without texts, a part of it with a preview. */
function fitRun(run: StoredRecord, previewChars: number): StoredRecord {
  if (previewChars <= 0) return { run };
  const options = { pageNumber: 1, maxCharsPerPage: maxShownCharacters, previewChars };
  const { runs, _truncated, _truncated_message, _truncated_preview } = buildPage('runs', [run], options);
  if (_truncated === undefined) return { run: (runs as StoredRecord[])[0] };
  return { run: pick(run, outlineFields), _truncated, _truncated_message, _truncated_preview };
}

const byDottedOrder = (a: StoredRecord, b: StoredRecord) => (String(a.dotted_order) < String(b.dotted_order) ? -1 : 1);

function formatLine(run: StoredRecord, top: string): string {
  const depth = String(run.dotted_order).split('.').length - top.split('.').length;
  const parts = [
    `${run.name} (${run.run_type})`,
    run.status,
    formatDuration(run.start_time, run.end_time),
    Number(run.total_tokens) > 0 ? `${run.total_tokens} tokens` : undefined,
    run.id,
  ];
  return '  '.repeat(depth) + parts.filter((part) => part !== undefined).join(', ');
}

function formatDuration(start: unknown, end: unknown): string | undefined {
  if (typeof start !== 'string' || typeof end !== 'string') return undefined;
  const [from, until] = [start, end].map((time) => Date.parse(/(?:Z|[+-]\d\d:?\d\d)$/.test(time) ? time : `${time}Z`));
  return `${((until as number) - (from as number)) / 1_000} s`;
}
