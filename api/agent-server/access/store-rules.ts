import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { holdsRequired, type RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { Allowed } from '../../../pipelines/agents/auth/auth-process.ts';
import { getItems } from '../../../pipelines/agents/store/read-items.ts';
import type { Rule } from './access-rules.ts';
import type { Questions } from './questions.ts';

/**
 * Access to store items. A handler can change the namespace and the key, and can return a filter, which is compared
 * with the fields of the value, with `namespace` (a list) and with `key`. Status codes are those of the reference
 * server (`api/store.mts`): 404 for an inaccessible item, 403 for a new item that would be inaccessible.
 */

type Values = Readonly<Record<string, unknown>>;

interface ItemKey {
  readonly namespace: readonly string[];
  readonly key: string;
}

const aboutItem = ({ namespace, key }: ItemKey, value?: unknown): Values => ({
  ...(value as object | undefined),
  namespace,
  key,
});

/** Returns true if the item exists. @throws STORE_ITEM_NOT_FOUND if it exists but does not contain `required`. */
async function reachItem(
  { deps }: Questions,
  itemKey: ItemKey,
  required: RequiredMetadata | undefined,
): Promise<boolean> {
  if (required === undefined) return true;
  const [item] = await getItems(deps.database, deps.deploymentId, [itemKey], false);
  if (!item) return false;
  if (!holdsRequired(aboutItem(item, item.value), required))
    throw runlakeError('STORE_ITEM_NOT_FOUND', { key: itemKey.key });
  return true;
}

function requireWithin(metadata: Values, required: RequiredMetadata | undefined): void {
  if (holdsRequired(metadata, required)) return;
  throw runlakeError('AUTH_FORBIDDEN', { reason: 'You would have no access to the item.' });
}

/** Passes the required metadata to the handler of the operation, which restricts what it finds. */
function restrictItems({ deps }: Questions, { required, value }: Allowed): Values {
  deps.access.items = required;
  return value;
}

export const storeRules: Readonly<Record<string, Rule>> = {
  putStoreItem: async ({ body }, ask, proceed) => {
    const { required, value: requested } = await ask.allow('store:put', pick(body, ['namespace', 'key', 'value']));
    const { namespace, key, value } = requested as unknown as ItemKey & { readonly value: unknown };
    await reachItem(ask, { namespace, key }, required);
    requireWithin(aboutItem({ namespace, key }, value), required);
    return proceed({ body: { ...body, namespace, key, value } });
  },
  getStoreItem: async ({ query }, ask, proceed) => {
    const requested = (query.namespace as readonly string[]).flatMap((labels) => labels.split('.'));
    const { required, value } = await ask.allow('store:get', { namespace: requested, key: query.key });
    const { namespace, key } = value as unknown as ItemKey;
    await reachItem(ask, { namespace, key }, required);
    return proceed({ query: { ...query, namespace, key } });
  },
  deleteStoreItem: async ({ body }, ask, proceed) => {
    const requested = { namespace: body.namespace ?? [], key: body.key };
    const { required, value } = await ask.allow('store:delete', requested);
    const { namespace, key } = value as unknown as ItemKey;
    if (!(await reachItem(ask, { namespace, key }, required))) requireWithin(aboutItem({ namespace, key }), required);
    return proceed({ body: { ...body, namespace, key } });
  },
  searchStoreItems: async ({ body }, ask, proceed) => {
    const requested = { namespace: body.namespace_prefix ?? [], ...pick(body, ['filter', 'limit', 'offset', 'query']) };
    const { namespace } = restrictItems(ask, await ask.allow('store:search', requested));
    return proceed({ body: { ...body, namespace_prefix: namespace } });
  },
  listStoreNamespaces: async ({ body }, ask, proceed) => {
    const requested = { namespace: body.prefix ?? [], ...pick(body, ['suffix', 'max_depth', 'limit', 'offset']) };
    const { namespace } = restrictItems(ask, await ask.allow('store:list_namespaces', requested));
    return proceed({ body: { ...body, prefix: namespace } });
  },
};

function pick(values: Values, names: readonly string[]): Values {
  return Object.fromEntries(names.filter((name) => values[name] !== undefined).map((name) => [name, values[name]]));
}
