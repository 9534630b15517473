import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { findFreePorts } from '../../infra/embedded/free-port.ts';

const graphsFile = fileURLToPath(new URL('graphs/langgraph.json', import.meta.url));
const answerTimeoutMs = 60_000;

/** Settings of an agent server with the graph on a free port, and its future address. */
export async function agentsAt(): Promise<{
  readonly environment: Readonly<Record<string, string>>;
  readonly url: string;
}> {
  const [port] = await findFreePorts(1);
  const environment = { RUNLAKE_AGENTS_FILE: graphsFile, RUNLAKE_AGENTS_PORT: String(port) };
  return { environment, url: `http://127.0.0.1:${port}` };
}

/** Resolves when the agent server at `url` responds. */
export async function untilItAnswers(url: string): Promise<void> {
  const untilMs = performance.now() + answerTimeoutMs;
  for (;;) {
    const answer = await fetch(`${url}/ok`).catch(() => undefined);
    if (answer?.ok) return;
    if (performance.now() > untilMs) throw new Error(`${url}/ok: ${answer?.status ?? 'no response'}`);
    await pause(50);
  }
}
