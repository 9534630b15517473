import { randomUUID } from 'node:crypto';
import type { Client } from '@langchain/langgraph-sdk';
import type { StreamController } from '@langchain/langgraph-sdk/stream';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { isFullExtent } from '../../house/extent.ts';
import { openTcpProxy } from '../../infra/tcp-proxy.ts';
import { until } from '../../infra/until.ts';
import { readErrorStatus, startAgentServer } from './start-agent-server.ts';
import { all, listNumbers, numbers, type Part } from './stream-parts.ts';

/**
 * The same behaviour through each supported version of the stock client: 1.12 to 1.15, and 2.0.0. Despite its number,
 * 2.0.0 is older than the others: it has neither the v2 protocol nor `/stream`.
 */

interface Version {
  readonly load: () => Promise<unknown>;
  /** Loads the basis of `useStream` in every framework. */
  readonly loadStream?: () => Promise<unknown>;
}

const versions: Record<string, Version> = {
  '1.12': {
    load: () => import('@langchain/langgraph-sdk'),
    loadStream: () => import('@langchain/langgraph-sdk/stream'),
  },
  '1.13': { load: () => import('langgraph-sdk-1-13'), loadStream: () => import('langgraph-sdk-1-13/stream') },
  '1.14': { load: () => import('langgraph-sdk-1-14'), loadStream: () => import('langgraph-sdk-1-14/stream') },
  '1.15': { load: () => import('langgraph-sdk-1-15'), loadStream: () => import('langgraph-sdk-1-15/stream') },
  '2.0': { load: () => import('langgraph-sdk-2-0') },
};

const server = forSuite(() => startAgentServer());

const hello = { messages: [{ role: 'user', content: 'hello' }] };

const known = Object.entries(versions);
// `make test` leaves out those between the oldest and the newest.
describe.each(isFullExtent ? known : known.filter(([version]) => !['1.13', '1.14'].includes(version)))(
  'version %s',
  (version, { load, loadStream }) => {
    let client: Client;
    let clientOf: (apiUrl: string) => Client;
    beforeAll(async () => {
      const sdk = (await load()) as { Client: new (options: object) => Client };
      clientOf = (apiUrl) =>
        new sdk.Client({ apiUrl, apiKey: server.owner.adminKey, callerOptions: { maxRetries: 0 } });
      client = clientOf(server.url);
    });
    const newThread = async () => (await client.threads.create({ metadata: { version } })).thread_id;

    it('creates, updates, finds, copies and deletes threads', async () => {
      const group = randomUUID();
      const threadId = randomUUID();
      const options = { threadId, metadata: { group }, graphId: 'steps', ttl: 60 } as object;
      expect(await client.threads.create(options)).toMatchObject({ thread_id: threadId, status: 'idle' });
      expect(await readErrorStatus(client.threads.create(options))).toBe(409);
      expect(await client.threads.create({ ...options, ifExists: 'do_nothing' })).toMatchObject({
        thread_id: threadId,
      });
      await client.threads.update(threadId, { metadata: { more: 1 } });
      expect(await client.threads.search({ metadata: { group }, limit: 5 })).toMatchObject([{ thread_id: threadId }]);
      expect(await client.threads.count({ metadata: { group, more: 1 } })).toBe(1);
      const { thread_id: copy } = await client.threads.copy(threadId);
      expect(await client.threads.get(copy)).toMatchObject({ metadata: { group } });
      await client.threads.delete(threadId);
      expect(await readErrorStatus(client.threads.get(threadId))).toBe(404);
    });

    it('waits for runs and raises their errors', async () => {
      const threadId = await newThread();
      const values = await client.runs.wait(threadId, 'echo', { input: hello });
      expect(values).toMatchObject({ messages: [{ content: 'hello' }, { content: 'echo: hello' }] });
      expect(await client.runs.wait(null, 'steps', { input: { steps: 2 } })).toMatchObject({ count: 2 });
      await expect(client.runs.wait(threadId, 'misbehave', { input: { how: 'fail' } })).rejects.toThrow('on purpose');
      expect(await readErrorStatus(client.runs.wait(threadId, 'nowhere', { input: {} }))).toBe(404);
      expect((await client.runs.list(threadId)).map(({ status }) => status)).toEqual(['error', 'success']);
    });

    it('streams in each mode and returns the run id', async () => {
      const seen = async (streamMode: unknown, graph = 'parent', input: object = {}, more: object = {}) => {
        let created = '';
        const stream = client.runs.stream(await newThread(), graph, {
          input,
          streamMode,
          onRunCreated: ({ run_id }: { run_id: string }) => {
            created = run_id;
          },
          ...more,
        } as never);
        const parts = await all(stream);
        expect(parts[0]).toMatchObject({ event: 'metadata', data: { run_id: created } });
        return [...new Set(parts.slice(1).map(({ event }) => event.replace(/:[0-9a-f-]{36}/g, '')))].sort();
      };
      expect(await seen('values')).toEqual(['values']);
      expect(await seen(['updates', 'custom'], 'parent', {}, { streamSubgraphs: true })).toEqual([
        'custom|child',
        'updates',
        'updates|child',
      ]);
      expect(await seen(['messages-tuple'], 'chat', hello)).toEqual(['messages']);
      expect(await seen('messages', 'chat', hello)).toEqual(expect.arrayContaining(['messages/partial']));
      expect(await seen(['debug', 'tasks', 'checkpoints'])).toEqual(['checkpoints', 'debug', 'tasks']);
      expect(await seen('events', 'burst', { n: 1 })).toEqual(['events']);
      expect(await all(client.runs.stream(null, 'burst', { input: { n: 3 }, streamMode: 'custom' }))).toHaveLength(4);
    });

    it('resumes a stream after the last event that it saw', async () => {
      const threadId = await newThread();
      const made = { input: { n: 20, pauseMs: 10 }, streamMode: 'custom' as const, streamResumable: true };
      const run = await client.runs.create(threadId, 'burst', made);
      const allParts = await all(client.runs.joinStream(threadId, run.run_id, { lastEventId: '-1' }));
      expect(numbers(allParts)).toEqual(listNumbers(20));
      const rest = await all(client.runs.joinStream(threadId, run.run_id, { lastEventId: allParts[7]!.id! }));
      expect(rest).toEqual(allParts.slice(8));
      expect(await client.runs.join(threadId, run.run_id)).toMatchObject({ done: 20 });
    });

    it('resumes a stream by itself when the connection breaks', async () => {
      const { hostname, port } = new URL(server.url);
      const proxy = await openTcpProxy(hostname, Number(port));
      onTestFinished(() => proxy.close());
      const proxiedClient = clientOf(`http://127.0.0.1:${proxy.port}`);
      const made = { input: { n: 100, pauseMs: 10 }, streamMode: 'custom' as const, streamResumable: true };
      const parts: Part[] = [];
      for await (const part of proxiedClient.runs.stream(await newThread(), 'burst', made)) {
        parts.push(part as Part);
        if (parts.length === 20) proxy.breakAll();
      }
      expect(numbers(parts)).toEqual(listNumbers(100));
    });

    it('interrupts and resumes with the reply; state and history show it', async () => {
      const threadId = await newThread();
      const asked = await all(
        client.runs.stream(threadId, 'ask', { input: { question: 'Go?' }, streamMode: 'updates' }),
      );
      expect(asked.at(-1)).toMatchObject({ data: { __interrupt__: [{ value: { question: 'Go?' } }] } });
      const state = await client.threads.getState(threadId);
      expect(state).toMatchObject({ next: ['ask'], tasks: [{ interrupts: [{ value: { question: 'Go?' } }] }] });
      expect(await client.threads.get(threadId)).toMatchObject({ status: 'interrupted' });
      const values = await client.runs.wait(threadId, 'ask', { command: { resume: 'yes' } });
      expect(values).toMatchObject({ result: 'answered: yes' });
      const history = await client.threads.getHistory(threadId, { limit: 10 });
      expect(history.map(({ next }) => next[0])).toEqual([undefined, 'finish', 'ask', 'prepare', '__start__']);
      const older = await client.threads.getHistory(threadId, {
        limit: 10,
        before: { configurable: history[1]!.checkpoint },
      } as never);
      expect(older).toHaveLength(3);
      await client.threads.updateState(threadId, { values: { result: 'changed' }, asNode: 'finish' });
      expect((await client.threads.getState(threadId)).values).toMatchObject({ result: 'changed' });
      const back = { input: null, checkpointId: history[3]!.checkpoint.checkpoint_id! };
      await client.runs.wait(threadId, 'ask', back);
      expect(await client.threads.getState(threadId)).toMatchObject({ next: ['ask'], values: { question: 'Go?' } });
    });

    it('cancels one run or many', async () => {
      const threadId = await newThread();
      const slow = { input: { steps: 1, pauseMs: 60_000 } };
      const [first, second] = [
        await client.runs.create(threadId, 'steps', slow),
        await client.runs.create(threadId, 'steps', slow),
      ];
      await client.runs.cancel(threadId, first.run_id, true);
      expect(await client.runs.get(threadId, first.run_id)).toMatchObject({ status: 'interrupted' });
      await client.runs.cancel(threadId, second.run_id, true, 'rollback');
      expect(await readErrorStatus(client.runs.get(threadId, second.run_id))).toBe(404);
      const third = await client.runs.create(threadId, 'steps', slow);
      if ('cancelMany' in client.runs) {
        await client.runs.cancelMany({ threadId, runIds: [third.run_id] });
        await client.runs.join(threadId, third.run_id);
        expect(await client.runs.get(threadId, third.run_id)).toMatchObject({ status: 'interrupted' });
      } else await (client as Client).runs.cancel(threadId, third.run_id, true);
      await client.runs.delete(threadId, third.run_id);
      expect(await client.runs.list(threadId)).toHaveLength(1);
    });

    it('manages assistants, with versions, schemas and graphs', async () => {
      const metadata = { group: randomUUID() };
      const made = await client.assistants.create({
        graphId: 'typed',
        name: `of ${version}`,
        metadata,
        config: { tags: ['a'] },
      });
      const id = made.assistant_id;
      expect(await client.assistants.update(id, { name: 'renamed', context: { tone: 'dry' } })).toMatchObject({
        version: 2,
      });
      expect((await client.assistants.getVersions(id)).map(({ version: each }) => each)).toEqual([2, 1]);
      expect(await client.assistants.setLatest(id, 2)).toMatchObject({ name: 'renamed' });
      expect(await client.assistants.search({ metadata, limit: 3 })).toMatchObject([{ assistant_id: id }]);
      expect(await client.assistants.count({ metadata })).toBe(1);
      expect(await client.runs.wait(null, id, { input: { topic: 'rain' } })).toMatchObject({
        joke: 'a dry joke about rain',
      });
      expect(await client.assistants.getSchemas(id)).toMatchObject({ input_schema: { properties: { topic: {} } } });
      expect((await client.assistants.getGraph(id)).nodes.map(({ id: node }) => node)).toContain('write');
      expect(Object.keys(await client.assistants.getSubgraphs('parent', { recurse: true }))).toEqual(['child']);
      await client.assistants.delete(id);
      expect(await readErrorStatus(client.assistants.get(id))).toBe(404);
    });

    it('manages crons', async () => {
      const threadId = await newThread();
      const made = await client.crons.createForThread(threadId, 'echo', {
        schedule: '0 0 1 1 *',
        input: hello,
        metadata: { version },
      });
      const { cron_id: cronId } = made as unknown as { cron_id: string };
      await client.crons.create('echo', { schedule: '0 0 1 1 *', metadata: { version } });
      expect(await client.crons.search({ threadId, limit: 5 })).toMatchObject([
        { cron_id: cronId, thread_id: threadId },
      ]);
      expect(await client.crons.count({ threadId })).toBe(1);
      expect(await client.crons.update(cronId, { schedule: '0 0 2 1 *', enabled: false } as never)).toMatchObject({
        schedule: '0 0 2 1 *',
        enabled: false,
      });
      await client.crons.delete(cronId);
      expect(await client.crons.search({ threadId })).toEqual([]);
    });

    it('manages items', async () => {
      const { store } = client;
      await store.putItem(['sdk', version.replace('.', '-')], 'likes', { food: 'soup' });
      const namespace = ['sdk', version.replace('.', '-')];
      expect(await store.getItem(namespace, 'likes')).toMatchObject({ namespace, value: { food: 'soup' } });
      expect((await store.searchItems(['sdk'], { filter: { food: 'soup' }, limit: 100 })).items.length).toBeGreaterThan(
        0,
      );
      expect((await store.listNamespaces({ prefix: namespace })).namespaces).toEqual([namespace]);
      await store.deleteItem(namespace, 'likes');
      expect(await store.getItem(namespace, 'likes')).toBeNull();
    });

    describe.skipIf(loadStream === undefined)('with the v2 protocol', () => {
      it('streams a thread: runs, messages, an interrupt and its reply', async () => {
        const chat = client.threads.stream(randomUUID(), { assistantId: 'chat' });
        // From 1.13 on, the client drops the messages of a run that ends while it subscribes to them.
        const firstText = (async () => {
          for await (const message of chat.messages) return message.text;
          return undefined;
        })();
        await chat.run.start({ input: hello });
        expect(await firstText).toBe('Good day.');
        expect(await chat.output).toMatchObject({ messages: [{ text: 'hello' }, { text: 'Good day.' }] });
        await chat.close();
        const asking = client.threads.stream(randomUUID(), { assistantId: 'ask' });
        const events = await asking.subscribe({ channels: ['lifecycle', 'input'] });
        await asking.run.start({ input: { question: 'Go?' } });
        for await (const { method, params } of events) {
          if (
            method === 'lifecycle' &&
            params.namespace.length === 0 &&
            (params.data as { event: string }).event === 'interrupted'
          )
            break;
        }
        const [question] = asking.interrupts;
        expect(question).toMatchObject({ payload: { question: 'Go?' } });
        await asking.input.respond({
          namespace: question?.namespace ?? [],
          interrupt_id: question?.interruptId ?? '',
          response: 'yes',
        });
        const result = async () =>
          (await client.threads.getState<{ result?: string }>(asking.threadId)).values.result === 'answered: yes';
        await until('the reply is accepted', result, 20_000);
        await asking.close();
      });

      async function open(assistantId: string, threadId: string | null = null) {
        const { StreamController: Controller } = (await loadStream!()) as { StreamController: typeof StreamController };
        const controller = new Controller({ assistantId, client, threadId });
        const deactivate = controller.activate();
        const close = async () => {
          deactivate();
          await controller.dispose();
        };
        return { controller, close, now: () => controller.rootStore.getSnapshot() };
      }

      it('serves useStream: submit, stream, interrupt, reply and rejoin', async () => {
        const chat = await open('chat');
        await chat.controller.submit(hello);
        await until('the message arrives', () => chat.now().messages.length === 2 && !chat.now().isLoading, 20_000);
        expect(chat.now().messages.map(({ text }) => text)).toEqual(['hello', 'Good day.']);
        const again = await open('chat', chat.now().threadId);
        await again.controller.hydrate(chat.now().threadId);
        await until('the messages are loaded again', () => again.now().messages.length === 2, 20_000);
        expect(again.now().messages.map(({ text }) => text)).toEqual(['hello', 'Good day.']);
        await Promise.all([chat.close(), again.close()]);

        const asking = await open('ask');
        await asking.controller.submit({ question: 'Go?' });
        await until('the interrupt', () => asking.now().interrupt !== undefined, 20_000);
        expect(asking.now().interrupt?.value).toEqual({ question: 'Go?' });
        await asking.controller.respond('yes');
        await until('the reply', () => (asking.now().values as { result?: string }).result === 'answered: yes', 20_000);
        await asking.close();
      });

      // Earlier versions do not know which run answers an interrupt.
      it.skipIf(version < '1.15')('serves useStream: shows a reply to other clients, and stops its run', async () => {
        const asking = await open('working');
        await asking.controller.submit({ question: 'Go?', pauseMs: 60_000 });
        await until('the interrupt', () => asking.now().interrupt !== undefined, 20_000);
        const threadId = asking.now().threadId as string;
        const other = await open('working', threadId);
        await other.controller.hydrate(threadId);
        await until('the interrupt', () => other.now().interrupt !== undefined, 20_000);
        const responding = asking.controller.respond('yes');
        await until('the other client hides the interrupt', () => other.now().interrupt === undefined, 20_000);
        await until(
          'the work to begin',
          async () => (await client.threads.getState(threadId)).next[0] === 'work',
          20_000,
        );
        await asking.controller.stop();
        await responding;
        const [run] = await client.runs.list(threadId);
        await until(
          'the end',
          async () => (await client.runs.get(threadId, run!.run_id)).status === 'interrupted',
          20_000,
        );
        await Promise.all([asking.close(), other.close()]);
      });
    });
  },
);
