import { useMutation } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { call } from '../../api/client.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { listOptions, Select } from '../../components/select.tsx';
import { useFirstFieldFocus } from '../../components/shortcuts.tsx';
import { Problem } from '../../components/states.tsx';
import { Value } from '../../components/text.tsx';
import type { Destination } from './paths.ts';

interface FormProps {
  readonly onSaved: (saved: Destination) => void;
  readonly onCancel: () => void;
}

const types = { s3: 'S3, or a store with its API', local: 'Folder of the server' } as const;

/** Creates a destination; the API writes a test object first. */
export function NewDestination({ onSaved, onCancel }: FormProps) {
  const [type, setType] = useState<keyof typeof types>('s3');
  const form = useFirstFieldFocus();
  const create = useMutation({
    mutationFn: (data: FormData) => {
      const read = (name: string) => readText(data, name);
      const config = { prefix: read('prefix') };
      return call('post', '/api/v1/bulk-exports/destinations', {
        body: {
          destination_type: type,
          display_name: read('name') ?? '',
          config:
            type === 'local'
              ? config
              : { ...config, bucket_name: read('bucket'), region: read('region'), endpoint_url: read('endpoint') },
          credentials: type === 'local' ? null : readCredentials(data),
        },
      });
    },
    onSuccess: onSaved,
  });
  return (
    <form ref={form} className="stack" aria-label="New destination" onSubmit={(event) => submit(event, create.mutate)}>
      <div className="export-form">
        <label className="field">
          Name
          <input className="input" name="name" required maxLength={255} />
        </label>
        <label className="field">
          Type
          <Select value={type} onChange={setType} options={listOptions(types)} />
        </label>
        {type === 's3' && (
          <>
            <label className="field">
              Bucket
              <input className="input" name="bucket" required />
            </label>
            <label className="field">
              Region
              <input className="input" name="region" placeholder="us-east-1" />
            </label>
            <label className="field">
              Endpoint
              <input className="input" name="endpoint" placeholder="Empty for AWS" />
            </label>
          </>
        )}
        <label className="field">
          {type === 's3' ? 'Prefix' : 'Folder below the root of local exports'}
          <input className="input" name="prefix" maxLength={1024} />
        </label>
        {type === 's3' && <CredentialFields />}
      </div>
      <FormEnd
        label="Create"
        error={create.error?.message}
        isPending={create.isPending}
        note="Runlake writes a test object before it creates the destination."
        onCancel={onCancel}
      />
    </form>
  );
}

/** Replaces the credentials of a destination after the API has tested the new ones. */
export function RotateCredentials({
  destination,
  onSaved,
  onCancel,
}: FormProps & { readonly destination: Destination }) {
  const form = useFirstFieldFocus();
  const update = useMutation({
    mutationFn: (data: FormData) =>
      call('patch', '/api/v1/bulk-exports/destinations/{destination_id}', {
        path: { destination_id: destination.id },
        body: { credentials: readCredentials(data) },
      }),
    onSuccess: onSaved,
  });
  return (
    <form
      ref={form}
      className="export-preview stack"
      aria-label="Replace the credentials"
      onSubmit={(event) => submit(event, update.mutate)}
    >
      <h2>
        New credentials of <Value text={destination.display_name} />
      </h2>
      <div className="export-form">
        <CredentialFields isRequired />
      </div>
      <FormEnd
        label="Replace"
        error={update.error?.message}
        isPending={update.isPending}
        note="Runlake tests them; if a step fails, the old ones stay."
        onCancel={onCancel}
      />
    </form>
  );
}

function CredentialFields({ isRequired = false }: { readonly isRequired?: boolean }) {
  const note = isRequired ? undefined : 'Empty: those of the server';
  return (
    <>
      <label className="field">
        Access key id
        <input className="input" name="access-key-id" autoComplete="off" required={isRequired} placeholder={note} />
      </label>
      <label className="field">
        Secret access key
        <input className="input" name="secret" type="password" autoComplete="off" required={isRequired} />
      </label>
      <label className="field">
        Session token
        <input
          className="input"
          name="token"
          type="password"
          autoComplete="off"
          placeholder="Of temporary credentials"
        />
      </label>
    </>
  );
}

function FormEnd({
  label,
  note,
  error,
  isPending,
  onCancel,
}: {
  readonly label: string;
  readonly note: string;
  readonly error: string | undefined;
  readonly isPending: boolean;
  readonly onCancel: () => void;
}) {
  return (
    <>
      <p className="muted">{note}</p>
      <Problem message={error} />
      <div className="row">
        <SubmitButton disabled={isPending}>{isPending ? 'Testing …' : label}</SubmitButton>
        <Button onClick={onCancel}>Cancel</Button>
      </div>
    </>
  );
}

function submit(event: FormEvent<HTMLFormElement>, send: (data: FormData) => void): void {
  event.preventDefault();
  send(new FormData(event.currentTarget));
}

function readText(data: FormData, name: string): string | null {
  return String(data.get(name) ?? '').trim() || null;
}

/** Returns null if no field is filled in; the API names a field that is missing. */
function readCredentials(data: FormData) {
  const [id, secret, token] = ['access-key-id', 'secret', 'token'].map((name) => readText(data, name));
  if (!id && !secret && !token) return null;
  return { access_key_id: id ?? '', secret_access_key: secret ?? '', session_token: token ?? null };
}
