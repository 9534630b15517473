import { randomUUID } from 'node:crypto';
import { askRunlake } from '../ask-runlake.ts';

/** A run as it is sent to `POST /runs/batch`. */
export interface SentRun extends Record<string, unknown> {
  readonly id: string;
  readonly name: string;
}

export interface RunTemplate {
  readonly name: string;
  readonly run_type?: string;
  /** Milliseconds after the start of the trace. */
  readonly from?: number;
  /** Unset: the run has not ended. */
  readonly until?: number | undefined;
  readonly inputs?: unknown;
  readonly outputs?: unknown;
  readonly error?: string;
  readonly tags?: readonly string[];
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly children?: readonly RunTemplate[];
}

/** Returns the runs of a trace that began at `startMs`, parents first. */
export function buildTrace(project: string, startMs: number, root: RunTemplate): SentRun[] {
  const runs: SentRun[] = [];
  const add = (template: RunTemplate, parent?: { id: string; dottedOrder: string }, traceId?: string) => {
    const id = randomUUID();
    const start = startMs + (template.from ?? 0);
    const segment = `${stampOf(start, runs.length)}${id}`;
    const dottedOrder = parent ? `${parent.dottedOrder}.${segment}` : segment;
    const { name, run_type = 'chain', inputs = {}, outputs, error, tags, metadata, until } = template;
    runs.push({
      id,
      name,
      run_type,
      session_name: project,
      trace_id: traceId ?? id,
      dotted_order: dottedOrder,
      start_time: new Date(start).toISOString(),
      inputs,
      ...(parent ? { parent_run_id: parent.id } : {}),
      ...(until === undefined ? {} : { end_time: new Date(startMs + until).toISOString() }),
      ...(outputs === undefined ? {} : { outputs }),
      ...(error === undefined ? {} : { error }),
      ...(tags ? { tags } : {}),
      ...(metadata ? { extra: { metadata } } : {}),
    });
    for (const child of template.children ?? []) add(child, { id, dottedOrder }, traceId ?? id);
  };
  add(root);
  return runs;
}

/** The start of a segment of a dotted order. The microseconds keep the order of runs with equal times. */
function stampOf(ms: number, index: number): string {
  const iso = new Date(ms).toISOString().replace(/[-:.Z]/g, '');
  return `${iso}${String(index % 1000).padStart(3, '0')}Z`;
}

/** Sends runs, or patches of runs, in batches and fails if one is refused. */
export async function sendRuns(
  url: string,
  apiKey: string,
  runs: readonly SentRun[],
  kind: 'post' | 'patch' = 'post',
): Promise<void> {
  for (let at = 0; at < runs.length; at += 1000) {
    const body = { post: [], patch: [], [kind]: runs.slice(at, at + 1000) };
    await askRunlake({ url, apiKey }, '/runs/batch', { body });
  }
}

const questions = [
  'Which invoices of March are still open?',
  'Summarise the incident of last night for the status page.',
  'Translate the release notes to German.',
  'Why was order 48213 shipped twice?',
  'Draft a reply to the customer about the refund.',
  'What changed between version 2.3 and 2.4?',
];
const plans = ['free', 'team', 'enterprise'];

/** Returns a trace of a support agent: retrieval, a tool, two model calls. Some fail, some are slow. */
export function buildAgentTrace(project: string, startMs: number, index: number): SentRun[] {
  const question = questions[index % questions.length] as string;
  const isFailed = index % 9 === 4;
  const isSlow = index % 7 === 3;
  const total = 1400 + ((index * 379) % 1900) + (isSlow ? 6800 : 0);
  const answer = `Here is what I found about “${question.toLowerCase()}” The records of the last 30 days were searched.`;
  const system = {
    role: 'system',
    content: 'You are the support agent of Example Ltd. Answer briefly and cite records.',
  };
  const call = {
    id: 'call_1',
    type: 'function',
    function: { name: 'search_orders', arguments: '{"query": "march open", "limit": 20}' },
  };
  const usage = (input: number, output: number) => ({
    usage_metadata: { input_tokens: input, output_tokens: output, total_tokens: input + output },
  });
  return buildTrace(project, startMs, {
    name: index % 5 === 0 ? 'triage agent' : 'support agent',
    until: total,
    inputs: { messages: [{ role: 'user', content: question }] },
    ...(isFailed
      ? {
          error:
            'ToolError: search_orders timed out after 5000 ms\n    at search (file:///app/tools/orders.js:41:11)\n    at async Agent.step (file:///app/agent.js:88:20)',
        }
      : {
          outputs: {
            messages: [
              { role: 'user', content: question },
              { role: 'assistant', content: answer },
            ],
          },
        }),
    tags: index % 3 === 0 ? ['prod', 'eu-west'] : ['prod'],
    metadata: {
      thread_id: `thread-${index % 12}`,
      plan: plans[index % plans.length],
      revision: 'a41f9c2',
      user_id: `u-${index % 20}`,
    },
    children: [
      {
        name: 'retrieve context',
        run_type: 'retriever',
        from: 12,
        until: 180,
        inputs: { query: question },
        outputs: {
          documents: [{ page_content: 'Open invoices are listed in the ledger.', metadata: { source: 'ledger.md' } }],
        },
      },
      {
        name: 'plan',
        run_type: 'llm',
        from: 190,
        until: 860,
        inputs: { messages: [system, { role: 'user', content: question }] },
        outputs: { role: 'assistant', content: '', tool_calls: [call], ...usage(412 + index, 38) },
        metadata: { ls_provider: 'openai', ls_model_name: 'gpt-4o-mini', ls_temperature: 0 },
      },
      {
        name: 'search_orders',
        run_type: 'tool',
        from: 870,
        until: isSlow ? total - 500 : 1100,
        inputs: { query: 'march open', limit: 20 },
        ...(isFailed
          ? { error: 'search_orders timed out after 5000 ms' }
          : { outputs: { rows: [{ id: 48213, total: 129.9, state: 'open' }], took_ms: 211 } }),
      },
      ...(isFailed
        ? []
        : [
            {
              name: 'answer',
              run_type: 'llm',
              from: total - 450,
              until: total - 10,
              inputs: {
                messages: [
                  system,
                  { role: 'user', content: question },
                  { role: 'assistant', content: '', tool_calls: [call] },
                  {
                    role: 'tool',
                    tool_call_id: 'call_1',
                    name: 'search_orders',
                    content: '[{"id": 48213, "total": 129.9}]',
                  },
                ],
              },
              outputs: { role: 'assistant', content: answer, ...usage(530 + index, 96) },
              metadata: { ls_provider: 'openai', ls_model_name: 'gpt-4o-mini', ls_temperature: 0 },
            },
          ]),
    ],
  });
}

/** Sends 250 traces of the project `support-agent`, in twelve threads of 20 or 21 turns. The newest is a minute old. */
export async function sendAgentTraces({
  url,
  apiKey,
}: {
  readonly url: string;
  readonly apiKey: string;
}): Promise<void> {
  const now = Date.now() - 60_000;
  const traces = Array.from({ length: 250 }, (_, index) =>
    buildAgentTrace('support-agent', now - index * 100_000, index),
  );
  await sendRuns(url, apiKey, traces.flat());
}

/** Returns a trace of `count` runs on five levels. */
export function buildLargeTrace(project: string, startMs: number, count: number): SentRun[] {
  let left = count - 1;
  const grow = (depth: number, from: number, until: number): RunTemplate[] => {
    const children: RunTemplate[] = [];
    const width = depth === 0 ? 40 : 10;
    const step = (until - from) / width;
    for (let index = 0; index < width && left > 0; index++) {
      left--;
      const start = Math.round(from + index * step);
      const end = Math.round(start + step * 0.9);
      children.push({
        name: `step ${depth}.${index}`,
        run_type: depth >= 3 ? 'tool' : 'chain',
        from: start,
        until: end,
        ...(left % 997 === 0 ? { error: `failed at ${left}` } : { outputs: { ok: true } }),
        children: depth < 3 ? grow(depth + 1, start, end) : [],
      });
    }
    return children;
  };
  const children: RunTemplate[] = [];
  while (left > 0) children.push(...grow(0, 0, 60_000));
  return buildTrace(project, startMs, { name: 'large trace', until: 60_000, outputs: { ok: true }, children });
}
