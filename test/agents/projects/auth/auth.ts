import { Auth, HTTPException } from '@langchain/langgraph-sdk/auth';

/** `Bearer secret-<name>`, a cookie `session=secret-<name>`, or `?session=secret-<name>` authenticates that user. */
export const auth = new Auth()
  .authenticate(async (request) => {
    const credentials =
      request.headers.get('authorization') ?? request.headers.get('cookie') ?? new URL(request.url).search.slice(1);
    const token = /^(?:Bearer |session=)(\w+)-(\w+)$/.exec(credentials);
    const name = token?.[2];
    if (token?.[1] !== process.env.TOKENS || name === undefined) {
      throw new HTTPException(401, { message: 'no such token' });
    }
    if (name === 'slow') await new Promise(() => undefined);
    if (name === 'banned') throw new HTTPException(451, { message: 'not for you' });
    if (name === 'broken') throw new Error('a secret of the database');
    if (name === 'dying') process.exit(3);
    if (name === 'counter' && new URL(request.url).pathname === '/threads/search')
      throw new HTTPException(403, { message: 'this user only counts' });
    return { identity: name, display_name: name.toUpperCase(), permissions: [`is:${name}`], plan: 'free' };
  })
  .on('*', ({ event, value, user }) => {
    if (user.identity === 'nobody') return false;
    if (user.identity === 'confused') return { owner: { $like: 'a' } } as never;
    if (user.identity === 'root') return true;
    if (user.identity === 'reader' && event === 'threads:read') return { shared: true } as never;
    if (event.endsWith(':create') || event.endsWith(':create_run')) {
      const made = value as { metadata?: Record<string, unknown> };
      made.metadata = { ...made.metadata, by: event };
    }
    return { owner: user.identity };
  })
  .on('crons', ({ user }) => (user.identity === 'root' ? true : { readers: { $contains: user.identity } }))
  .on('store', ({ value, user }) => {
    if (user.identity === 'root') return;
    if (user.identity === 'confused_store') return { owner: { $like: 'a' } } as never;
    if (user.identity.startsWith('valued_')) return { owner: { $eq: user.identity } };
    if (user.identity.startsWith('spaced_')) return { namespace: { $contains: user.identity }, key: 'k' };
    const item = value as { namespace?: string[] | null };
    item.namespace = [user.identity, ...(item.namespace ?? [])];
    return;
  });
