"""The first process of a sandbox: holds identity, certificate and credentials, and keeps supervisor and runner up."""
