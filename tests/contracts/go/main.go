// A chunker and a client of the retriever, which use only the code generated from the contracts.
//
// Usage: example RETRIEVER
//
// RETRIEVER is the address of a retriever. The program retrieves two passages, prints one line of JSON with their texts
// and the port of its chunker, and serves the chunker until its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"os"
	"time"
	"unicode/utf8"

	guardrails "causeway.internal/contracts/guardrails/v1"
	identity "causeway.internal/contracts/identity/v1"
	retriever "causeway.internal/contracts/retriever/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// lines is a chunker that ends a chunk after each line.
type lines struct {
	guardrails.UnimplementedChunkerServiceServer
}

func (lines) Chunk(stream grpc.BidiStreamingServer[guardrails.ChunkRequest, guardrails.ChunkResponse]) error {
	var taken, end uint64
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &guardrails.ChunkResponse{}
		at := taken
		for _, character := range request.GetText() {
			at++
			if character == '\n' {
				answer.Ends, end = append(answer.Ends, at), at
			}
		}
		taken += uint64(utf8.RuneCountInString(request.GetText()))
		if request.GetLast() && end < taken {
			answer.Ends = append(answer.Ends, taken)
		}
		answer.Taken = taken
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func retrieve(address string) ([]string, error) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := retriever.NewRetrieverServiceClient(connection).Retrieve(ctx, &retriever.RetrieveRequest{
		Principal: &identity.Principal{Tenant: "default"},
		Indexes:   []string{"handbook"},
		Query:     "When is high water?",
		Top:       2,
	})
	if err != nil {
		return nil, err
	}
	texts := []string{}
	for _, passage := range found.GetPassages() {
		texts = append(texts, passage.GetText())
	}
	return texts, nil
}

func main() {
	texts, err := retrieve(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	guardrails.RegisterChunkerServiceServer(server, lines{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"passages": texts, "port": listener.Addr().(*net.TCPAddr).Port}); err != nil {
		log.Fatal(err)
	}
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
