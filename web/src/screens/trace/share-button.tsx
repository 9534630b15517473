import { useMutation, useQuery } from '@tanstack/react-query';
import { call } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { CopyButton } from '../../components/copy-button.tsx';
import { Icon } from '../../components/icon.tsx';
import { Popover } from '../../components/popover.tsx';
import { Problem } from '../../components/states.tsx';

/** Shares the trace of a run by a public link, and ends that. */
export function ShareButton({ runId }: { readonly runId: string }) {
  if (!usePermission('runs:share')) return null;
  return (
    <Popover label={<Icon name="share" />} name="Share" className="button icon" end>
      {() => <ShareForm runId={runId} />}
    </Popover>
  );
}

function ShareForm({ runId }: { readonly runId: string }) {
  const path = { run_id: runId };
  const share = useQuery({
    queryKey: ['share', runId],
    queryFn: ({ signal }) => call('get', '/api/v1/runs/{run_id}/share', { path, signal }),
  });
  const change = useMutation({
    mutationFn: async (isShared: boolean) =>
      isShared
        ? void (await call('put', '/api/v1/runs/{run_id}/share', { path }))
        : void (await call('delete', '/api/v1/runs/{run_id}/share', { path })),
    onSuccess: () => share.refetch(),
  });
  const token = share.data?.share_token;
  const error = share.error ?? change.error;
  const link = `${window.location.origin}/public/${token}/r`;
  return (
    <div className="stack share-form">
      <Problem message={error?.message} />
      {token ? (
        <>
          <p>Anyone with the link can read this trace.</p>
          <input className="input mono" readOnly value={link} aria-label="Public link" />
          <div className="row">
            <CopyButton label="Copy the link" text={() => link} />
            <button
              type="button"
              className="button danger"
              disabled={change.isPending}
              onClick={() => change.mutate(false)}
            >
              Stop sharing
            </button>
          </div>
        </>
      ) : (
        <>
          <p>The trace is not shared. A public link needs no key.</p>
          <button
            type="button"
            className="button primary"
            disabled={change.isPending || share.isPending}
            onClick={() => change.mutate(true)}
          >
            Create a public link
          </button>
        </>
      )}
    </div>
  );
}
