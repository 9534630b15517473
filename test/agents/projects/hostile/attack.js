import { closeSync, writeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

/** Writes all bytes; retries while the pipe is full. */
function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

const attacks = {
  none: () => undefined,
  // Messages over Node's own IPC channel to the parent.
  send: ({ messages }) => {
    for (const message of messages) process.send?.(message);
    process.emit('message', { kind: 'cancel' });
    process.disconnect?.();
  },
  // Raw bytes on the private pipe to the parent process.
  write: async ({ fd = 3, bytes, times = 1 }) => {
    for (let time = 0; time < times; time += 1) writeAll(fd, Buffer.from(bytes, 'base64'));
    await delay(5_000);
  },
  // Child runs of this run, as its tracer would send them; RUN stands for the run id.
  trace: async ({ key, records }, { configurable }) => {
    const texts = records.map(({ parts }) =>
      parts.map((part) => Buffer.from(part.replaceAll('RUN', configurable.run_id))),
    );
    const runs = records.map(({ id }, index) => ({
      kind: 'post',
      runId: id,
      open: false,
      sizes: texts[index].map(({ byteLength }) => byteLength),
    }));
    const head = Buffer.from(JSON.stringify({ kind: 'traced', key, droppedRuns: 0, droppedValues: 0, runs }));
    const body = Buffer.concat(texts.flat());
    const lengths = Buffer.alloc(8);
    lengths.writeUInt32LE(head.byteLength, 0);
    lengths.writeUInt32LE(body.byteLength, 4);
    writeAll(3, Buffer.concat([lengths, head, body]));
  },
  close: async () => {
    closeSync(3);
    await delay(60_000);
  },
  print: ({ lines }) => {
    for (let line = 0; line < lines; line += 1) console.log(`line ${line}`);
  },
  // One-byte events until the run is stopped.
  events: async (_, config) => {
    while (!config.signal.aborted) {
      for (let number = 0; number < 100; number += 1) config.writer(0);
      await new Promise((resolve) => setImmediate(resolve));
    }
    console.log('stopped');
  },
};

export const graph = new StateGraph(Annotation.Root({ attack: Annotation, done: Annotation }))
  .addNode('node', async ({ attack }, config) => {
    const { how, ...more } = attack;
    config.writer({ begins: how });
    await attacks[how](more, config);
    return { done: true };
  })
  .addEdge('__start__', 'node')
  .compile();
