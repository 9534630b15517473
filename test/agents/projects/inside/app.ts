import { Client } from '@langchain/langgraph-sdk';
import { getLogger } from '@langchain/langgraph-sdk/logging';
import { Hono } from 'hono';

const logger = getLogger();
/** One client for all requests, as in real projects. */
const client = new Client({ callerOptions: { maxRetries: 0, maxConcurrency: 2 } });

export const app = new Hono();

/** Returns the user id of a run created with the credentials of the request. */
app.get('/own/user', async (c) => {
  try {
    const run = await client.runs.create(null, 'configured', { input: {}, afterSeconds: 600 });
    const { kwargs } = run as unknown as { kwargs: { config: { configurable: Record<string, unknown> } } };
    logger.debug('asked');
    return c.json({ user: kwargs.config.configurable.langgraph_auth_user_id });
  } catch (error) {
    return c.json({ error: (error as Error).message }, 502);
  }
});
