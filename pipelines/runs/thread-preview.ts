/** Previews of a thread: its conversation as text, in the forms that clients request. */
import { isJsonObject } from '../../infra/json/json-value.ts';
import type { ReadDeps } from './locate-run.ts';
import { type OpenAiMessage, toOpenAiMessages, toText } from './openai-messages.ts';
import { readAllRuns } from './query-runs.ts';
import { selectFields } from './run-select.ts';
import { addThreadCondition } from './threads.ts';

export const previewForms = ['all_messages', 'human_ai_pairs', 'first_human_last_ai'] as const;
export type PreviewForm = (typeof previewForms)[number];

/** Maximum length of a preview. Longer previews are truncated and end with `…`. */
const maxPreviewCharacters = 10_000;
const turnsPerRead = 20;

interface ProjectThread {
  readonly tenantId: string;
  readonly projectId: string;
  readonly threadId: string;
}

/** The root run of a trace of the thread. */
interface Turn {
  readonly inputs: unknown;
  readonly outputs: unknown;
}

/**
 * Reads previews of a thread; returns undefined if the thread has no trace. Turns are read, oldest first, until the
 * texts have reached their maximum length.
 *
 * @throws errors of the stores.
 */
export async function readThreadPreviews(
  deps: ReadDeps,
  thread: ProjectThread,
  forms: readonly PreviewForm[],
): Promise<Partial<Record<PreviewForm, string>> | undefined> {
  const transcript: OpenAiMessage[] = [];
  const pairs: OpenAiMessage[] = [];
  let first: OpenAiMessage | undefined;
  let count = 0;
  const needsTurns = forms.some((form) => form !== 'first_human_last_ai');
  for await (const turn of readTurns(deps, thread, 'asc')) {
    count += 1;
    const { human, ai } = addTurn(transcript, turn);
    first ??= human;
    pairs.push(...[human, ai].filter((message) => message !== undefined));
    if (!needsTurns || exceedsPreviewSize(pairs)) break;
  }
  if (count === 0) return undefined;
  const texts: Readonly<Record<PreviewForm, () => Promise<string>>> = {
    all_messages: async () => formatMessages(transcript),
    human_ai_pairs: async () => formatMessages(pairs),
    first_human_last_ai: async () => {
      const last = await readLastAnswer(deps, thread);
      return formatMessages([first, last].filter((message) => message !== undefined));
    },
  };
  return Object.fromEntries(await Promise.all(forms.map(async (form) => [form, await texts[form]()])));
}

async function readLastAnswer(deps: ReadDeps, thread: ProjectThread): Promise<OpenAiMessage | undefined> {
  for await (const turn of readTurns(deps, thread, 'desc', 1)) return addTurn([], turn).ai;
  return undefined;
}

function readTurns(
  deps: ReadDeps,
  { tenantId, projectId, threadId }: ProjectThread,
  order: 'asc' | 'desc',
  limitRows = turnsPerRead,
): AsyncGenerator<Turn> {
  return readAllRuns(deps, {
    tenantId,
    projectIds: [projectId],
    filter: { isRoot: true, conditions: addThreadCondition([threadId], undefined) },
    selected: selectFields(['inputs', 'outputs']),
    order,
    limitRows,
  });
}

/**
 * Adds the messages of a turn to the transcript, and returns the last human message and the last answer of the turn.
 * The inputs of a turn often repeat the conversation so far, and its outputs often repeat the inputs; repeated messages
 * are not added.
 */
function addTurn(transcript: OpenAiMessage[], { inputs, outputs }: Turn) {
  const newInputMessages = removeRepeatedMessages(transcript, readMessages(inputs, 'user'), (newest) =>
    Math.max(newest, 0),
  );
  transcript.push(...newInputMessages);
  const newOutputMessages =
    outputs === null
      ? []
      : removeRepeatedMessages(transcript, readMessages(outputs, 'assistant'), (newest) => newest + 1);
  transcript.push(...newOutputMessages);
  return {
    human: newInputMessages.findLast(({ role }) => role === 'user'),
    ai: newOutputMessages.findLast(({ role }) => role === 'assistant'),
  };
}

function readMessages(value: unknown, role: 'user' | 'assistant'): OpenAiMessage[] {
  return toOpenAiMessages(isJsonObject(value) ? value : { value }, role);
}

/**
 * Returns the messages that the transcript does not contain yet.
 *
 * @param findStart Returns the index of the first new message, given the index of the newest human message, which is -1
 *   if there is none.
 */
function removeRepeatedMessages(
  transcript: readonly OpenAiMessage[],
  messages: readonly OpenAiMessage[],
  findStart: (newest: number) => number,
) {
  const repeats = transcript.every(
    (message, at) => message.role === messages[at]?.role && readText(message) === readText(messages[at]),
  );
  // Otherwise, the messages do not begin with the conversation so far.
  return messages.slice(repeats ? transcript.length : findStart(messages.findLastIndex(({ role }) => role === 'user')));
}

const labels = new Map(Object.entries({ user: 'Human', assistant: 'AI', system: 'System', tool: 'Tool' }));

function formatMessages(messages: readonly OpenAiMessage[]): string {
  const text = messages
    .map((message) => `${labels.get(message.role) ?? message.role}: ${readText(message)}`)
    .join('\n\n');
  const characters = [...text.slice(0, 2 * maxPreviewCharacters)];
  if (characters.length <= maxPreviewCharacters) return text;
  return `${characters.slice(0, maxPreviewCharacters).join('')}…`;
}

function exceedsPreviewSize(messages: readonly OpenAiMessage[]): boolean {
  return messages.reduce((sum, message) => sum + readText(message).length, 0) > 2 * maxPreviewCharacters;
}

/** Returns the text of a message; for a list of content blocks, returns the text of its text blocks. */
function readText({ content }: OpenAiMessage): string {
  if (content === null || content === undefined) return '';
  if (!Array.isArray(content)) return toText(content);
  return content
    .map((block: unknown) => {
      if (typeof block === 'string') return block;
      const { text } = (block ?? {}) as { readonly text?: unknown };
      return typeof text === 'string' ? text : '';
    })
    .join('');
}
