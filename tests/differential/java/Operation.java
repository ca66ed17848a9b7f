package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;

/** A kind of operation: it returns the decision; an exception is the error of the whole request. */
@FunctionalInterface
interface Operation {
    ControllerResult<?> decide(World world, JsonNode arguments) throws Exception;
}
