import { useEffect, useRef, useState } from 'react';
import { fillPath, send } from '../../api/client.ts';
import { readEvents } from '../../api/event-stream.ts';
import { Problem } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';

interface Chunk {
  readonly sequence: number;
  readonly stage: string;
  readonly text: string;
}
const stages = ['build', 'deploy', 'run'] as const;
/** Older chunks are dropped from the view; a chunk has at most 16 KiB. */
const maxChunks = 1_000;
const retryMs = 2_000;

/** The log of a revision. It grows until the revision has its final status, and then on request. */
export function RevisionLog({
  deploymentId,
  revisionId,
}: {
  readonly deploymentId: string;
  readonly revisionId: string;
}) {
  const { chunks, isLive, problem, reload } = useLog(deploymentId, revisionId);
  const [stage, setStage] = useState<string>('');
  const shown = chunks.filter((chunk) => stage === '' || chunk.stage === stage);
  const view = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the view follows the end when lines arrive.
  useEffect(() => {
    if (view.current && isAtEnd.current) view.current.scrollTop = view.current.scrollHeight;
  }, [shown.length]);
  return (
    <section aria-label="Log of the revision" className="stack">
      <header className="row wrap">
        <h2>Log</h2>
        {isLive && (
          <span className="badge live-badge" role="status">
            live
          </span>
        )}
        <span className="spacer" />
        <label className="row">
          Stage
          <select className="input" value={stage} onChange={({ target }) => setStage(target.value)}>
            <option value="">all</option>
            {stages.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <button type="button" className="button" onClick={reload} disabled={isLive}>
          Read on
        </button>
      </header>
      <Problem message={problem} />
      <pre
        ref={view}
        className="agents-log"
        tabIndex={0}
        role="region"
        aria-label="Lines of the log"
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          isAtEnd.current = scrollHeight - scrollTop - clientHeight < 20;
        }}
      >
        {shown.length === 0 && <span className="muted">{isLive ? 'Nothing yet' : 'Empty'}</span>}
        {shown.map(({ sequence, text }) => (
          <span key={sequence}>
            {showInvisible(text)}
            {text.endsWith('\n') ? '' : '\n'}
          </span>
        ))}
      </pre>
    </section>
  );
}

/** Follows the log. After a broken connection, it continues after the last chunk that arrived. */
function useLog(deploymentId: string, revisionId: string) {
  const [chunks, setChunks] = useState<readonly Chunk[]>([]);
  const [isLive, setLive] = useState(true);
  const [problem, setProblem] = useState<string>();
  const [round, setRound] = useState(0);
  const last = useRef<string>(undefined);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another round reads on.
  useEffect(() => {
    const abort = new AbortController();
    const path = fillPath(
      '/api/v2/deployments/{deployment_id}/revisions/{revision_id}/logs',
      { deployment_id: deploymentId, revision_id: revisionId },
      {},
    );
    const follow = async (): Promise<void> => {
      try {
        const headers = {
          accept: 'text/event-stream',
          ...(last.current !== undefined && { 'last-event-id': last.current }),
        };
        const response = await send('get', path, undefined, abort.signal, { headers });
        setProblem(undefined);
        for await (const { event, data, lastId } of readEvents(response)) {
          if (event !== 'log') continue;
          last.current = lastId;
          const chunk = JSON.parse(data) as Chunk;
          setChunks((former) => [...former, chunk].slice(-maxChunks));
        }
        setLive(false);
      } catch (error) {
        if (abort.signal.aborted) return;
        setProblem(error instanceof Error ? error.message : String(error));
        await new Promise((resolve) => setTimeout(resolve, retryMs));
        if (!abort.signal.aborted) await follow();
      }
    };
    setLive(true);
    void follow();
    return () => abort.abort();
  }, [deploymentId, revisionId, round]);
  return { chunks, isLive, problem, reload: () => setRound(round + 1) };
}
