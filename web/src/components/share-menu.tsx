import { useMutation, useQuery } from '@tanstack/react-query';
import { Button } from './button.tsx';
import { CopyButton } from './copy-button.tsx';
import { Icon } from './icon.tsx';
import { Popover } from './popover.tsx';
import { Problem } from './states.tsx';

interface Share {
  /** Kind of the shared object, such as `trace`. */
  readonly what: string;
  readonly queryKey: readonly string[];
  /** Returns the token of the public link; undefined if there is none. */
  readonly readToken: (signal: AbortSignal) => Promise<string | undefined>;
  readonly share: () => Promise<unknown>;
  readonly unshare: () => Promise<unknown>;
  /** Last segment of the path of the public link. */
  readonly page: 'r' | 'd';
}

/** A menu that creates and removes the public link of an object. */
export function ShareMenu(share: Share) {
  return (
    <Popover label={<Icon name="share" />} name="Share" className="button icon" end>
      {() => <ShareForm {...share} />}
    </Popover>
  );
}

function ShareForm({ what, queryKey, readToken, share, unshare, page }: Share) {
  const found = useQuery({ queryKey, queryFn: async ({ signal }) => (await readToken(signal)) ?? null });
  const change = useMutation({
    mutationFn: (isShared: boolean) => (isShared ? share() : unshare()),
    onSuccess: () => found.refetch(),
  });
  const error = found.error ?? change.error;
  const link = `${window.location.origin}/public/${found.data}/${page}`;
  return (
    <div className="stack share-form">
      <Problem message={error?.message} />
      {found.data ? (
        <>
          <p>Anyone with the link can read this {what}.</p>
          <input className="input mono" readOnly value={link} aria-label="Public link" />
          <div className="row">
            <CopyButton label="Copy the link" text={() => link} />
            <Button kind="danger" disabled={change.isPending} onClick={() => change.mutate(false)}>
              Stop sharing
            </Button>
          </div>
        </>
      ) : (
        <>
          <p>The {what} is not shared. A public link needs no key.</p>
          <Button kind="primary" disabled={change.isPending || found.isPending} onClick={() => change.mutate(true)}>
            Create a public link
          </Button>
        </>
      )}
    </div>
  );
}
