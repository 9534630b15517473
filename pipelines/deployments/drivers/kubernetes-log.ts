import { once } from 'node:events';
import { finished, PassThrough, type Readable } from 'node:stream';
import type { KubeConfig } from '@kubernetes/client-node';
import { readLines } from '../../../infra/isolation/read-lines.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { containerName } from '../check-pod.ts';

export type KubernetesLibrary = typeof import('@kubernetes/client-node');

/** Number of lines of a log that are read from before it is followed. */
export const maxLogLines = 20;
/** Pause before the log of a replica is opened again. */
const logPauseMs = 1_000;

interface LogSource {
  readonly library: KubernetesLibrary;
  readonly kubeConfig: KubeConfig;
  readonly namespace: string;
  /** Returns the name of the newest pod of the replica. */
  findPod(): Promise<string | undefined>;
}

/** How far the log of a pod was read. */
interface ReadLog {
  readonly pod: string;
  from: { readonly tailLines?: number; readonly sinceTime?: string };
}

/** Passes the log of a replica on, from the last lines of its newest pod on. @returns a function that ends this. */
export function followPodLog(source: LogSource, onLog: (line: string) => void): () => void {
  const ended = new AbortController();
  const { signal } = ended;
  void (async () => {
    let read: ReadLog | undefined;
    for (; !signal.aborted; await pause(logPauseMs, signal)) {
      try {
        const pod = await source.findPod();
        if (pod === undefined) continue;
        if (pod !== read?.pod) read = { pod, from: read === undefined ? { tailLines: maxLogLines } : {} };
        await readLog(source, read, onLog, signal);
      } catch {
        // The container has not started yet, or the API does not respond.
      }
    }
  })();
  return () => ended.abort();
}

/** Reads a log until the container or the connection ends. */
async function readLog(
  { library, kubeConfig, namespace }: LogSource,
  read: ReadLog,
  onLog: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const output = new PassThrough();
  // The library ends the output only if the response is complete.
  output.once('pipe', (response: Readable) => finished(response, () => output.end()));
  readLines([output], (line) => {
    const [, time = '', text = ''] = /^(\S+) (.*)$/.exec(line) ?? [];
    // The lines of the last second are sent again.
    if (time === '' || time <= (read.from.sinceTime ?? '')) return;
    read.from = { sinceTime: time };
    if (text.trim() !== '') onLog(text);
  });
  const options = { follow: true, timestamps: true, ...read.from };
  const following = await new library.Log(kubeConfig).log(namespace, read.pod, containerName, output, options);
  const end = () => following.abort();
  signal.addEventListener('abort', end);
  if (signal.aborted) end();
  await once(output, 'close');
  signal.removeEventListener('abort', end);
}
