import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { LoadedGraph } from '../graphs/load-graph.ts';
import type { GraphConfig } from '../runs/run.ts';
import type { StoreRules } from '../store/store-item.ts';
import { embedTexts } from '../store/write-items.ts';
import { graphJson } from '../workers/graph-json.ts';
import { toLibraryConfig } from '../workers/run-config.ts';
import type { SaverFor } from '../workers/saver-for.ts';
import type { StoreFor } from '../workers/store-for.ts';
import { ThreadSaver } from '../workers/thread-saver.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { readSchemas, readSubgraphSchemas } from './schemas.ts';
import { readHistory, readState } from './state.ts';
import { updateState } from './update-state.ts';

export interface RequestDeps {
  readonly graphs: ReadonlyMap<string, LoadedGraph>;
  /** Reasons why graphs are unusable, by graph id. */
  readonly loadErrors: Readonly<Record<string, string>>;
  readonly saverFor: SaverFor;
  readonly storeFor: StoreFor;
  readonly rules: StoreRules;
}

/**
 * Answers a query in the worker. Resolves with JSON text.
 *
 * @throws GRAPH_NOT_FOUND, GRAPH_UNUSABLE, STORE_EMBEDDER_UNUSABLE, and errors of the graph.
 */
export async function answerRequest(request: GraphRequest, deps: RequestDeps): Promise<string> {
  if (request.kind === 'embed') return JSON.stringify(await embedTexts(deps.rules, request.texts));
  const target = 'thread' in request ? request.thread : request;
  const config = toLibraryConfig(target.config as GraphConfig, {
    ...('thread' in request && { threadId: request.thread.threadId }),
    configurable: { graph_id: target.graphId },
  });
  const graph = await createInstance(target.graphId, config, deps);
  if ('thread' in request) {
    const { deploymentId, graphId } = request.thread;
    const lease = request.kind === 'update-state' ? { leaseToken: request.leaseToken, graphId } : undefined;
    graph.checkpointer ??= new ThreadSaver(deps.saverFor(lease), deploymentId);
    graph.store ??= deps.storeFor(deploymentId);
    // A graph with `checkpointer: false` has no stored state.
    if (graph.checkpointer === false) return graphJson(request.kind === 'history' ? [] : null);
  }
  switch (request.kind) {
    case 'state':
      return graphJson(await readState(graph, config, request));
    case 'history':
      return readHistory(graph, config, request);
    case 'update-state':
      return graphJson(await updateState(graph, config, request));
    case 'schemas':
      return graphJson({ graph_id: request.graphId, ...readSchemas(graph) });
    case 'subgraphs':
      return graphJson(await readSubgraphSchemas(graph, request));
    case 'drawing':
      return graphJson((await graph.getGraphAsync({ ...config, xray: request.xray })).toJSON());
  }
}

async function createInstance(
  graphId: string,
  config: object,
  { graphs, loadErrors }: RequestDeps,
): Promise<CompiledGraph> {
  const loaded = graphs.get(graphId);
  if (loaded !== undefined) return loaded.instance(config);
  const reason = loadErrors[graphId];
  if (reason === undefined)
    throw runlakeError('GRAPH_NOT_FOUND', { graph: graphId, graphs: [...graphs.keys()].join(', ') });
  throw runlakeError('GRAPH_UNUSABLE', { graph: graphId, reason });
}
