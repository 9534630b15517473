import { randomUUID } from 'node:crypto';
import { settings } from '../../infra/config/settings.ts';
import { generateKey } from '../../pipelines/tenants/key-format.ts';

/** Next steps after the demo, as lines that can be pasted into a shell; `test/docs/demo.test.ts` runs them. */
export function nextSteps(): string {
  const key = generateKey();
  const port = process.env[settings.port.variable] || settings.port.fallback;
  const url = `http://127.0.0.1:${port}`;
  const today = Date.now();
  const [from, to] = [today, today + 24 * 3_600_000].map((ms) => new Date(ms).toISOString().slice(0, 10));
  const run = { id: randomUUID(), name: 'hello', run_type: 'chain', inputs: { question: 'Who are you?' } };
  return `
Every figure is equal to what was sent. The demo's data is gone; to go on with your own:

  1. Start Runlake with an admin key of your choice; its data stays in .runlake:

     ${settings.bootstrapApiKey.variable}=${key} make start

  2. In another terminal, send a first trace and read the usage:

     curl -H 'x-api-key: ${key}' -H 'content-type: application/json' ${url}/api/v1/runs -d '${JSON.stringify(run)}'
     curl -H 'x-api-key: ${key}' '${url}/api/v1/orgs/current/billing/usage?starting_on=${from}&ending_before=${to}'

  3. Point the langsmith SDK at it:

     export LANGSMITH_TRACING=true LANGSMITH_ENDPOINT=${url} LANGSMITH_API_KEY=${key}

  The API, page by page: ${url}/docs   All of this in words: README.md`;
}
