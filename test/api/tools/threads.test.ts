import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { childRun, rootRun, type SentRun, sendRuns } from './send-runs.ts';
import { startToolServer } from './start-tools.ts';

const server = forSuite(() => startToolServer());

const inThread = (key: string, id: string) => ({ extra: { metadata: { [key]: id } } });
const history = (args: Record<string, unknown>) =>
  server.call('get_thread_history', { project_name: 'chats', page_number: 1, ...args });

/** A model call of OpenAI's form. */
function modelCall(parent: SentRun, asked: string, answer: string, more: object): SentRun {
  const inputs = { messages: [{ role: 'user', content: asked }] };
  return childRun(parent, 'chats', {
    run_type: 'llm',
    inputs,
    outputs: { choices: [{ message: { role: 'assistant', content: answer } }] },
    ...more,
  });
}

it('returns the messages of model calls, oldest first, in pages', async () => {
  const runs = Array.from({ length: 130 }, (_, turn) => {
    const key = ['thread_id', 'session_id', 'conversation_id'][turn % 3] as string;
    const root = rootRun('chats', inThread(key, 'long "one"'));
    return [
      root,
      modelCall(root, `question ${turn}`, `answer ${turn} ${'x'.repeat(300)}`, inThread(key, 'long "one"')),
    ];
  });
  await sendRuns(server, runs.flat());
  const first = await history({ thread_id: 'long "one"', max_chars_per_page: 5_000 });
  expect(first).toMatchObject({ page_number: 1, max_chars_per_page: 5_000, preview_chars: 150 });
  const messages = [...first.result];
  for (let page = 2; page <= first.total_pages; page += 1)
    messages.push(
      ...(await history({ thread_id: 'long "one"', max_chars_per_page: 5_000, page_number: String(page) })).result,
    );
  expect(messages).toHaveLength(260);
  expect(messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(
    Array.from({ length: 130 }, (_, turn) => `question ${turn}`),
  );
  expect(messages[1].content).toMatch(/^answer 0 x+… \(\+\d+ chars\)$/);
});

it('without model calls, returns those of the root runs', async () => {
  const user = { type: 'human', content: 'hello' };
  const answer = { type: 'ai', content: 'hi' };
  await sendRuns(server, [
    rootRun('chats', {
      inputs: { messages: [user] },
      outputs: { messages: [user, answer] },
      ...inThread('thread_id', 'graph'),
    }),
  ]);
  expect((await history({ thread_id: 'graph' })).result).toEqual([user, answer]);
});

it('does not repeat messages that the state of a graph keeps from earlier turns', async () => {
  const message = (type: string, content: string) => ({ type, content, id: `${type} ${content}` });
  const state = ['1', '2', '3'].flatMap((turn) => [message('human', turn), message('ai', turn)]);
  const roots = [1, 2, 3].map((turn) =>
    rootRun('chats', {
      inputs: { messages: [{ role: 'user', content: String(turn) }] },
      outputs: { messages: state.slice(0, turn * 2) },
      ...inThread('thread_id', 'turns'),
    }),
  );
  await sendRuns(server, roots);
  expect((await history({ thread_id: 'turns' })).result).toEqual(state);
});

it('says why there are none, as the original does', async () => {
  await sendRuns(server, [rootRun('chats', inThread('thread_id', 'silent'))]);
  expect(await history({ thread_id: 'none' })).toEqual({ error: 'No runs found for thread none in project chats' });
  expect(await history({ thread_id: 'silent' })).toEqual({ error: 'No messages found in the runs for thread silent' });
  expect((await history({ thread_id: 'x', project_name: 'nowhere' })).error).toMatch(
    /^Error fetching thread history: Project nowhere not found\./,
  );
});
