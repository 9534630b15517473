import { fault } from '../../../infra/errors/runlake-error.ts';
import { holdsRequired, type RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { Allowed } from '../../../pipelines/agents/auth/auth-desk.ts';
import { getItems } from '../../../pipelines/agents/store/get-items.ts';
import type { Rule } from './access-rule.ts';
import type { Questions } from './questions.ts';

/**
 * Access to items of the store. A handler may change the namespace and the key that are asked for, and may answer a filter, which is
 * compared with the fields of the value, with `namespace` (a list) and with `key`. Statuses are those of the reference server
 * (`api/store.mts`): 404 for an item out of reach, 403 for one that would be.
 */

type Values = Readonly<Record<string, unknown>>;

interface Place {
  readonly namespace: readonly string[];
  readonly key: string;
}

const aboutItem = ({ namespace, key }: Place, value?: unknown): Values => ({
  ...(value as object | undefined),
  namespace,
  key,
});

/** Whether there is an item. @throws STORE_ITEM_NOT_FOUND where there is one that does not hold `required`. */
async function reachItem({ ports }: Questions, place: Place, required: RequiredMetadata | undefined): Promise<boolean> {
  if (required === undefined) return true;
  const [item] = await getItems(ports.database, ports.deploymentId, [place], false);
  if (!item) return false;
  if (!holdsRequired(aboutItem(item, item.value), required)) throw fault('STORE_ITEM_NOT_FOUND', { key: place.key });
  return true;
}

function requireWithin(metadata: Values, required: RequiredMetadata | undefined): void {
  if (holdsRequired(metadata, required)) return;
  throw fault('AUTH_FORBIDDEN', { reason: 'The item would be out of your reach.' });
}

/** Leaves to the handler of the operation what it may find. */
function onlyItemsOf({ ports }: Questions, { required, value }: Allowed): Values {
  ports.access.items = required;
  return value;
}

export const storeRules: Readonly<Record<string, Rule>> = {
  putStoreItem: async ({ body }, ask, go) => {
    const { required, value: asked } = await ask.allow('store:put', pick(body, ['namespace', 'key', 'value']));
    const { namespace, key, value } = asked as unknown as Place & { readonly value: unknown };
    await reachItem(ask, { namespace, key }, required);
    requireWithin(aboutItem({ namespace, key }, value), required);
    return go({ body: { ...body, namespace, key, value } });
  },
  getStoreItem: async ({ query }, ask, go) => {
    const asked = (query.namespace as readonly string[]).flatMap((labels) => labels.split('.'));
    const { required, value } = await ask.allow('store:get', { namespace: asked, key: query.key });
    const { namespace, key } = value as unknown as Place;
    await reachItem(ask, { namespace, key }, required);
    return go({ query: { ...query, namespace, key } });
  },
  deleteStoreItem: async ({ body }, ask, go) => {
    const asked = { namespace: body.namespace ?? [], key: body.key };
    const { required, value } = await ask.allow('store:delete', asked);
    const { namespace, key } = value as unknown as Place;
    if (!(await reachItem(ask, { namespace, key }, required))) requireWithin(aboutItem({ namespace, key }), required);
    return go({ body: { ...body, namespace, key } });
  },
  searchStoreItems: async ({ body }, ask, go) => {
    const asked = { namespace: body.namespace_prefix ?? [], ...pick(body, ['filter', 'limit', 'offset', 'query']) };
    const { namespace } = onlyItemsOf(ask, await ask.allow('store:search', asked));
    return go({ body: { ...body, namespace_prefix: namespace } });
  },
  listStoreNamespaces: async ({ body }, ask, go) => {
    const asked = { namespace: body.prefix ?? [], ...pick(body, ['suffix', 'max_depth', 'limit', 'offset']) };
    const { namespace } = onlyItemsOf(ask, await ask.allow('store:list_namespaces', asked));
    return go({ body: { ...body, prefix: namespace } });
  },
};

function pick(values: Values, names: readonly string[]): Values {
  return Object.fromEntries(names.filter((name) => values[name] !== undefined).map((name) => [name, values[name]]));
}
