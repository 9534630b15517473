import { fault } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { LoadedGraph } from '../graphs/load-graph.ts';
import type { GraphConfig } from '../runs/run.ts';
import type { StoreRules } from '../store/store-item.ts';
import { embedTexts } from '../store/unit-vectors.ts';
import { graphJson } from '../workers/graph-json.ts';
import { libraryConfig } from '../workers/run-config.ts';
import type { SaverFor } from '../workers/saver-for.ts';
import type { StoreFor } from '../workers/store-for.ts';
import { ThreadSaver } from '../workers/thread-saver.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { readHistory } from './history.ts';
import { schemasOf } from './schemas.ts';
import { readState } from './state.ts';
import { subgraphsOf } from './subgraphs.ts';
import { updateState } from './update-state.ts';

export interface RequestPorts {
  readonly graphs: ReadonlyMap<string, LoadedGraph>;
  /** Why graphs that are not there are not. */
  readonly faults: Readonly<Record<string, string>>;
  readonly saverFor: SaverFor;
  readonly storeFor: StoreFor;
  readonly rules: StoreRules;
}

/** Answers a question to graph code, as JSON text. Runs in the worker. @throws GRAPH_NOT_FOUND, GRAPH_UNUSABLE, STORE_EMBEDDER_UNUSABLE, and what the graph throws. */
export async function answerRequest(request: GraphRequest, ports: RequestPorts): Promise<string> {
  if (request.kind === 'embed') return JSON.stringify(await embedTexts(ports.rules, request.texts));
  const about = 'thread' in request ? request.thread : request;
  const config = libraryConfig(about.config as GraphConfig, {
    ...('thread' in request && { threadId: request.thread.threadId }),
    configurable: { graph_id: about.graphId },
  });
  const graph = await graphOf(about.graphId, config, ports);
  if ('thread' in request) {
    const { deploymentId, graphId } = request.thread;
    const lease = request.kind === 'update-state' ? { leaseToken: request.leaseToken, graphId } : undefined;
    graph.checkpointer ??= new ThreadSaver(ports.saverFor(lease), deploymentId);
    graph.store ??= ports.storeFor(deploymentId);
    // A graph that keeps nothing has no state to tell of.
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
      return graphJson({ graph_id: request.graphId, ...schemasOf(graph) });
    case 'subgraphs':
      return graphJson(await subgraphsOf(graph, request));
    case 'drawing':
      return graphJson((await graph.getGraphAsync({ ...config, xray: request.xray })).toJSON());
  }
}

async function graphOf(graphId: string, config: object, { graphs, faults }: RequestPorts): Promise<CompiledGraph> {
  const loaded = graphs.get(graphId);
  if (loaded !== undefined) return loaded.instance(config);
  const reason = faults[graphId];
  if (reason === undefined) throw fault('GRAPH_NOT_FOUND', { graph: graphId, graphs: [...graphs.keys()].join(', ') });
  throw fault('GRAPH_UNUSABLE', { graph: graphId, reason });
}
