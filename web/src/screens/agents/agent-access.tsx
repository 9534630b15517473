import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useEffect, useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { readForm } from '../../components/read-form.ts';
import { EmptyState, ErrorState, LoadingState } from '../../components/states.tsx';
import { type AgentClient, AgentClientContext, createAgentClient, type OwnHeader } from './agent-client.ts';

/** Headers that viewers entered, by deployment. They are lost when the page is left or the session ends. */
const ownHeaders = new Map<string, OwnHeader>();
let version = 0;

interface Addressed {
  readonly id: string;
  readonly slug: string | undefined;
  readonly isServing: boolean;
}

/**
 * Renders `children` with a client of the deployment. If the deployment refuses the session, because it has
 * authentication of its own or is an image, the viewer can enter a header.
 */
export function AgentAccess({
  deployment,
  children,
}: {
  readonly deployment: Addressed;
  readonly children: ReactNode;
}) {
  const { id, slug, isServing } = deployment;
  if (slug === undefined)
    return (
      <EmptyState title="This image has an address of its own">Use a client of its agent server there.</EmptyState>
    );
  if (!isServing)
    return <EmptyState title="No revision serves yet">Its revisions show how far the latest one is.</EmptyState>;
  return (
    <WithClient key={id} id={id} slug={slug}>
      {children}
    </WithClient>
  );
}

function WithClient({
  id,
  slug,
  children,
}: {
  readonly id: string;
  readonly slug: string;
  readonly children: ReactNode;
}) {
  const queries = useQueryClient();
  const [client, setClient] = useState<AgentClient>(() => createAgentClient({ id, slug }, ownHeaders.get(id), version));
  // Every screen of a deployment needs its assistants. Reading them also shows whether the deployment grants access.
  const access = useQuery({
    queryKey: [...client.key, 'access'],
    queryFn: ({ signal }) => client.request('post', '/assistants/search', { body: { limit: 1 }, signal }),
    retry: false,
  });
  useEffect(
    () => () => {
      queries.removeQueries({ queryKey: ['agents', id], type: 'inactive' });
    },
    [queries, id],
  );
  const chooseHeader = (header: OwnHeader | undefined) => {
    version += 1;
    if (header) ownHeaders.set(id, header);
    else ownHeaders.delete(id);
    setClient(createAgentClient({ id, slug }, header, version));
  };
  if (access.isPending) return <LoadingState label="Connecting to the deployment" />;
  const { error } = access;
  // The browser does not send a header with some characters.
  const isUnsendable = error instanceof TypeError && ownHeaders.has(id);
  const isRefused = isUnsendable || (error instanceof ApiError && (error.status === 401 || error.status === 403));
  if (isRefused) return <HeaderForm reason={error.message} onHeader={chooseHeader} />;
  // If a later read fails, the screen stays with what was entered; its own requests show their errors.
  if (error && access.data === undefined) return <ErrorState error={error} onRetry={() => void access.refetch()} />;
  return (
    <AgentClientContext value={client}>
      {ownHeaders.has(id) && (
        <p className="agents-note row wrap">
          Requests carry the header <code>{ownHeaders.get(id)?.name}</code> that you entered.
          <Button onClick={() => chooseHeader(undefined)}>Forget it</Button>
        </p>
      )}
      {children}
    </AgentClientContext>
  );
}

function HeaderForm({ reason, onHeader }: { readonly reason: string; readonly onHeader: (header: OwnHeader) => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const read = readForm(event);
    onHeader({ name: read('name'), value: read('value') });
  };
  return (
    <form className="agents-access stack" onSubmit={submit} aria-label="Header for this deployment">
      <h2>The deployment refused the request</h2>
      <p className="error-text" role="alert">
        {reason}
      </p>
      <p className="muted">
        A deployment with authentication of its own, or an image, does not accept your session. Enter a header that it
        accepts. It is sent to this deployment only and kept until you leave the page.
      </p>
      <label className="field">
        Header
        <input className="input" name="name" defaultValue="Authorization" required pattern="[A-Za-z0-9\-]+" />
      </label>
      <label className="field">
        Value
        <input className="input" name="value" type="password" autoComplete="off" placeholder="Bearer …" required />
      </label>
      <div className="row">
        <SubmitButton>Use this header</SubmitButton>
      </div>
    </form>
  );
}
